// Package bench compares placement with other libraries, in one run. It is a module
// of its own, so that no user of roost depends on them.
package bench
