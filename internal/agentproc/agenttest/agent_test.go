package agenttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestFolder: a later test process removes the folders that a killed test process left behind.
func TestFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed := exec.Command("go", "version")
	if err := killed.Run(); err != nil {
		t.Fatal(err)
	}
	for name, stays := range map[string]bool{
		fmt.Sprintf("roost-program-%d-1", killed.Process.Pid): false,
		fmt.Sprintf("roost-program-%d-1", os.Getppid()):       true,
		"roost-program-of-a-user":                             true,
		fmt.Sprintf("another-%d-1", killed.Process.Pid):       true,
	} {
		dir := filepath.Join(os.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		own, err := Folder()
		if err != nil || filepath.Dir(own) != os.TempDir() {
			t.Fatal(own, err)
		}
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: %v; should it stay? %v", name, err, stays)
		}
		if _, err := os.Stat(own); err != nil {
			t.Error(err)
		}
	}
}
