// Package docstest contains only tests, which run the commands in the documentation.
//
// Commands come from README.md, CONTRIBUTING.md, docs/, deploy/, the help texts and the comments in the
// source code. The page controls how its commands run:
//
//	```sh                   each line must exit with 0
//	```sh new               start over in an empty directory, with no running processes
//	```sh stays             the commands keep running until the end; those in rules always do
//	```sh retry             the commands are repeated until they print the expected output
//	```sh norun: REASON     the block is not run
//	roost version  # => go1     the line must print this
//	make demo      # or: make   the alternative is also a command
//	```text                 the block of commands before it must print this
//
// In source comments, each line that looks like a command runs as its own block.
//
// The file testdata/notes.txt contains instructions that readers of a page should not see. The notes of a
// page are in the same order as its commands:
//
//	prints COMMAND          the block with this command must print the lines below
//	before COMMAND          the lines below run before that block
//	new before COMMAND      the same, but first start over in an empty directory
//	after COMMAND           the lines below run after that block
//	skip COMMAND: REASON    the block, such as a paragraph with `code spans`, is not run
//
// In expected output, … matches any text, white space matches any white space or none, and a number of ten
// digits or more matches any such number. Commands run in bash. The table substitutions replaces addresses
// and tools in a command with those of the test. Commands in running text are not executed, but roost, make
// and go test must accept them.
package docstest
