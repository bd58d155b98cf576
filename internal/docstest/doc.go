// Package docstest runs what the pages have their reader type. It has nothing but
// tests.
//
// Commands come from README.md, CONTRIBUTING.md, docs/, deploy/, the help texts and the
// comments of the source: extract_test.go says what counts as one. The lists in
// *_pages_test.go hold each of them, in the order of its page, with what it prints, or
// with the reason why it is not run. A command that a list lacks fails the test, and so
// does a line of a list that its page has no more.
//
// Commands run in bash, in a directory and with addresses of the test's own: see
// substitutions. Those that `code spans` of running text have must be such as roost
// and go test take.
package docstest
