package main

import (
	"fmt"
	"strconv"
	"strings"
)

// maxEdges bounds the edges of a room: their numbers come from clients.
const maxEdges = 64

// edgeOf returns the room and the number of an edge. Any other name is of a room, and its number is 0. An edge has no edges
// of its own: "room~1~1" is a room.
func edgeOf(name string) (room string, number int) {
	room, number = cutNumber(name)
	isEdge := number > 0
	for rest, n := cutNumber(room); n > 0; rest, n = cutNumber(rest) {
		isEdge = !isEdge
	}
	if !isEdge {
		return name, 0
	}
	return room, number
}

// cutNumber cuts the number of an edge from a name. It returns 0 if there is none.
func cutNumber(name string) (rest string, number int) {
	i := strings.LastIndexByte(name, '~')
	if i <= 0 {
		return name, 0
	}
	n, err := strconv.Atoi(name[i+1:])
	if err != nil || n <= 0 || n > maxEdges || name[i+1:] != strconv.Itoa(n) {
		return name, 0
	}
	return name[:i], n
}

// chain returns the names of a room and of its edges, up to the given one, or to the one after it.
func chain(name string, next int) (names []string) {
	room, last := edgeOf(name)
	names = append(names, room)
	for i := range last + next {
		names = append(names, fmt.Sprint(room, "~", i+1))
	}
	return names
}
