package main

import (
	"fmt"
	"strconv"
	"strings"
)

// maxRelays limits the relays of a room, because the numbers of relays come from clients.
const maxRelays = 64

// relayOf splits the name of a relay into the room and the number of the relay. For the name of a room, the
// number is 0. Because relays do not have relays themselves, "room~1~1" is a room.
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

// cutNumber cuts the number of a relay off a name. If the name has no such number, cutNumber returns 0.
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

// chain returns the names of a room and its relays. If name is a relay, chain includes the relays up to name. It also
// includes next more relays.
func chain(name string, next int) (names []string) {
	room, last := relayOf(name)
	names = append(names, room)
	for i := range last + next {
		names = append(names, fmt.Sprint(room, "~", i+1))
	}
	return names
}
