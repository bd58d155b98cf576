package latest_test

import (
	"fmt"

	"github.com/roost-cluster/roost/events/latest"
)

// A slow reader skips values, but always gets the newest one.
func ExampleValue() {
	var temperature latest.Value[int]
	temperature.Set(20)
	value, changed := temperature.Get()
	fmt.Println(*value)

	temperature.Set(21)
	temperature.Set(22)
	<-changed // closed by the first of them
	value, _ = temperature.Get()
	fmt.Println(*value)
	// Output:
	// 20
	// 22
}
