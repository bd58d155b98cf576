// Package browser tests what a user sees: the dashboard in a browser, commands on a
// terminal, and answers of the API against its description.
package browser
