package clients

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// oldestNode is the first major version that the clients work with, though they ask for 22.
	oldestNode = 20
	// installTimeout bounds npm ci, nodeTimeout one file of tests.
	installTimeout = 5 * time.Minute
	nodeTimeout    = 2 * time.Minute
)

// TestNode runs the clients for Node, each file against a server of its own.
func TestNode(t *testing.T) {
	for _, file := range []string{"openai.test.mjs", "frameworks.test.mjs"} {
		t.Run(file, func(t *testing.T) {
			w := start(t)
			runNode(t, file, "KTMS_URL="+w.HTTP+"/v1", "KTMS_KEY="+w.key, "KTMS_READER="+w.reader, "KTMS_BROKE="+w.broke, "KTMS_UPSTREAM="+w.upstream)
		})
	}
}

// passed is the line of a test run's summary that counts successes.
var passed = regexp.MustCompile(`(?m)^# pass ([1-9]\d*)$`)

// runNode runs one file of node/. The environment is the one given, so that nobody's own keys and settings play a part.
func runNode(t *testing.T, file string, environment ...string) {
	t.Helper()
	if err := installNode(); err != nil {
		t.Fatal(err)
	}
	_, _ = os.ReadDir("node") // go test caches by what the test reads, and must not overlook a changed file there
	ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=tap", file)
	cmd.Dir = "node"
	cmd.Env = append(environment, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if found := passed.FindSubmatch(out); err == nil && found != nil {
		t.Logf("%s tests of %s passed", found[1], file)
		return
	}
	t.Errorf("%s: %v\n%s", file, errors.Join(err, ctx.Err()), out)
}

// installNode looks for Node, and fetches the packages when they are missing or older than the lockfile.
var installNode = sync.OnceValue(func() error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return errors.New(program + " is missing: install Node.js " + strconv.Itoa(oldestNode) + " or newer with npm, for the clients in server/servertest/clients/node")
		}
	}
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		return err
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		return errors.New("node is too old: install Node.js " + strconv.Itoa(oldestNode) + " or newer, this is " + strings.TrimSpace(string(version)))
	}
	lock, err := os.Stat(filepath.Join("node", "package-lock.json"))
	if err != nil {
		return err
	}
	// npm writes this file last.
	installed, err := os.Stat(filepath.Join("node", "node_modules", ".package-lock.json"))
	if err == nil && !installed.ModTime().Before(lock.ModTime()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = "node"
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.New("npm ci failed, it needs a package registry: " + err.Error() + "\n" + string(out))
	}
	return nil
})
