// Package docstest runs the commands of the pages. It contains only tests.
//
// Commands come from README.md, CONTRIBUTING.md, docs/, deploy/, the help texts and the
// comments of the source. To change a page is to change that page alone, because the
// page says how its commands run:
//
//	```sh                   each line must exit with 0
//	```sh new               the reader starts over: an empty directory, nothing runs
//	```sh stays             the commands run until the end; those in rules do so anyway
//	```sh retry             the lines are repeated until they print the expected output
//	```sh norun: REASON     the block is not run
//	roost version  # => go1     the line must print this
//	make demo      # or: make   the alternative is a command, too
//	```text                 the block of commands before it must print this
//	<!-- sh … -->           a block that is invisible on the page, with the same options
//	<!-- text … -->         output that is invisible on the page
//	<!-- norun: REASON -->  `code spans` of the next paragraph are not run
//
// A comment in the source uses lines such as //docstest:text (#docstest:text in files
// where comments begin with #). Lines of other blocks run if they look like commands.
//
// In expected output … stands for anything, white space is flexible, and a number of ten
// digits or more stands for any number. Commands run in bash, with the addresses and the
// tools of the test: see substitutions. Commands in running text are not run: roost and
// go test must accept them.
package docstest
