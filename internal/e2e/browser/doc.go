// Package browser tests what users see: the dashboard in a browser, commands on a terminal, and API
// responses, which it compares with the OpenAPI description.
package browser
