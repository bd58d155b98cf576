package clusterhttp

import (
	"errors"
	"strings"
	"testing"
)

func expectProblem(t *testing.T, err error, status int, code, text string) {
	t.Helper()
	var p *Problem
	if !errors.As(err, &p) || p.Status != status || p.Code != code || !strings.Contains(p.Message, text) {
		t.Errorf("got %v, want %d %s %q", err, status, code, text)
	}
}
