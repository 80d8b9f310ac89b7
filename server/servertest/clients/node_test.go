package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestNode runs the official clients for Node, in node/clients.test.mjs.
func TestNode(t *testing.T) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is missing: install Node.js 20 or newer with npm; scripts/test does so on Debian", program)
		}
	}
	installNode(t)
	w := start(t)
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-timeout=60000", "clients.test.mjs")
	cmd.Dir = "node"
	cmd.Env = append(os.Environ(), "KTMS_URL="+w.HTTP+"/v1", "KTMS_KEY="+w.key, "KTMS_READER="+w.reader)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// installNode fetches the packages when they are missing or older than the lockfile.
func installNode(t *testing.T) {
	t.Helper()
	lock, err := os.Stat(filepath.Join("node", "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	installed, err := os.Stat(filepath.Join("node", "node_modules", ".package-lock.json"))
	if err == nil && !installed.ModTime().Before(lock.ModTime()) {
		return
	}
	cmd := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = "node"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}
