//go:build linux

package main

import (
	"testing"
	"time"
)

// A node makes its certificate once, at its start. Nobody can join a node whose certificate has expired.
func TestCertificate(t *testing.T) {
	t.Parallel()
	all, err := certificate()
	if err != nil {
		t.Fatal(err)
	}
	if at := all[0].Expires(); at.Before(time.Now().AddDate(9, 0, 0)) {
		t.Errorf("the certificate of a node expires at %v", at)
	}
}
