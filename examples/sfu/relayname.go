package main

import (
	"fmt"
	"strconv"
	"strings"
)

// maxRelays limits the relays of a room, because their numbers come from clients.
const maxRelays = 64

// relayOf returns the room and the number of a relay. Any other name is that of a room, with the number 0. A
// relay has no relays, so "room~1~1" is a room.
func relayOf(name string) (room string, number int) {
	room, number = cutNumber(name)
	isRelay := number > 0
	for rest, n := cutNumber(room); n > 0; rest, n = cutNumber(rest) {
		isRelay = !isRelay
	}
	if !isRelay {
		return name, 0
	}
	return room, number
}

// cutNumber cuts the number of a relay from a name. It returns 0 if there is none.
func cutNumber(name string) (rest string, number int) {
	i := strings.LastIndexByte(name, '~')
	if i <= 0 {
		return name, 0
	}
	n, err := strconv.Atoi(name[i+1:])
	if err != nil || n <= 0 || n > maxRelays || name[i+1:] != strconv.Itoa(n) {
		return name, 0
	}
	return name[:i], n
}

// chain returns the names of a room and its relays, up to the given one plus next.
func chain(name string, next int) (names []string) {
	room, last := relayOf(name)
	names = append(names, room)
	for i := range last + next {
		names = append(names, fmt.Sprint(room, "~", i+1))
	}
	return names
}
