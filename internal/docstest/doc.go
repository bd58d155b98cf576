// Package docstest runs the commands on the pages of the documentation. It only has tests.
//
// Commands come from README.md, CONTRIBUTING.md, docs/, deploy/, the help texts and the
// comments of the source. The page says how its commands run:
//
//	```sh                   each line must exit with 0
//	```sh new               the reader starts over: an empty directory, nothing runs
//	```sh stays             the commands run until the end; those in rules do so anyway
//	```sh retry             the lines are repeated until they print the expected output
//	```sh norun: REASON     the block is not run
//	roost version  # => go1     the line must print this
//	make demo      # or: make   the alternative is a command, too
//	```text                 the block of commands before it must print this
//
// In comments of the source, lines that look like commands run, each as a block.
//
// Instructions that no reader should see are in testdata/notes.txt, for each page in the order of the page:
//
//	prints COMMAND          the block with this command must print the lines below
//	before COMMAND          the lines below run before that block
//	new before COMMAND      likewise, and the reader starts over
//	after COMMAND           the lines below run after that block
//	skip COMMAND: REASON    the block, such as a paragraph with `code spans`, is not run
//
// In expected output, … matches anything, white space is flexible, and a number of ten digits or more matches
// any number. Commands run in bash, with the addresses and tools of the test: see substitutions. Commands in
// running text are not run, but roost and go test must accept them.
package docstest
