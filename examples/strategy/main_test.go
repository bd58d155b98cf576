package main

func Example() {
	main()
	// Output:
	// the first 16 partitions, each next to its mirror: b a a b b a a b b a b a b a b a
	// partition 1: a has the best score for it by capacity and weight among nodes of role ssd, to which it is pinned, and mirrors partition 0, which b in zone "west" has
	// a in east, capacity 1000: 186 partitions
	// b in west, capacity 1000: 200 partitions
	// c in east, capacity 2000: 326 partitions
	// d in west, capacity 2000: 312 partitions
	// the cluster rejects an agent with strategy shards-ssd-32 instead of shards-ssd-16
}
