package main

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

// Several keys are there while a cluster changes from one to another.
func TestDecodeKeys(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
	line := func(key []byte) string { return base64.StdEncoding.EncodeToString(key) + "\n" }
	key, old, err := decodeKeys([]byte(line(one) + "  " + line(two)))
	if err != nil || !bytes.Equal(key, one) || len(old) != 1 || !bytes.Equal(old[0], two) {
		t.Errorf("%v, %v, %v", key, old, err)
	}
	if _, _, err := decodeKeys([]byte(line(one) + "\n" + line(two))); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("an empty line between: %v", err)
	}
}
