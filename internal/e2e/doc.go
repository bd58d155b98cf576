// Package e2e tests what a user sees: the dashboard in a browser, commands on a
// terminal, and answers of the API against its description. It is a module of its
// own, so that the browser driver, the pseudo terminal and the JSON schema validator
// are no requirements of a program that uses roost.
package e2e
