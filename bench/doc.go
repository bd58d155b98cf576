// Package bench measures placement beside other libraries, in one run. It is a
// module of its own, so that nobody who uses roost depends on them.
package bench
