// Package bench compares placement with other libraries in a single run. It is a separate module, so that
// users of roost do not depend on those libraries.
package bench
