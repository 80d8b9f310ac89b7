package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ai-process/ktms/store/storetest"
)

// lendBlocks are the commands of README.md with which a machine is lent, in three shells.
func lendBlocks(t *testing.T) []string {
	t.Helper()
	_, section, found := strings.Cut(readFile(t, "../../README.md"), "## Lend a machine's GPU\n")
	section, _, ends := strings.Cut(section, "\n- **")
	if !found || !ends {
		t.Fatal("README.md does not say how to lend a machine")
	}
	var blocks []string
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		blocks = append(blocks, block[1])
	}
	if len(blocks) != 3 {
		t.Fatalf("README.md lends a machine with %d shells: %q", len(blocks), blocks)
	}
	return blocks
}

// shell runs commands with the grpcurl that the clients of servertest pin.
type shell struct {
	*testing.T
	tools string
	// replace puts the ports of this test in place of the manual's.
	replace *strings.Replacer
}

func (s shell) run(commands string) string {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), "/bin/sh", "-euc", s.replace.Replace(commands))
	cmd.Env = append(os.Environ(), "PATH="+s.tools+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%v: %s\n%s", err, commands, out)
	}
	return string(out)
}

// TestPool_TheFirstLocalAnswerFromNothing walks through README.md command by command. Only where the programs listen and where
// their binaries are is put into them.
func TestPool_TheFirstLocalAnswerFromNothing(t *testing.T) {
	blocks := lendBlocks(t)
	agent := agentProgram(t)
	module, err := filepath.Abs("../../server/servertest/clients") // whose go.mod pins the tool
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	grpcurl := "#!/bin/sh\ncd '" + module + "' && exec go tool grpcurl \"$@\"\n"
	if err := os.WriteFile(filepath.Join(tools, "grpcurl"), []byte(grpcurl), 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ollama := startChild(t, true, []string{engineVariable + "=127.0.0.1:0"}, self)
	environment(t, freePorts)
	t.Chdir(t.TempDir())

	if blocks[0] != "go run ./cmd/ktms-server dev\n" {
		t.Fatalf("the first shell runs %q", blocks[0])
	}
	p := startDev(t, nil)
	grpc := regexp.MustCompile(`Connect (\S+)`).FindStringSubmatch(p.out.String())[1]
	sh := shell{t, tools, strings.NewReplacer("localhost:9090", grpc, "http://127.0.0.1:8080", p.base)}

	setUp, starts, found := strings.Cut(blocks[1], "NODE_KEY=ktms_node_<the key> go run ./cmd/ktms-node ")
	if !found {
		t.Fatalf("the second shell does not start the agent: %q", blocks[1])
	}
	printed := sh.run(setUp)
	key := regexp.MustCompile(`"plainKey": "(ktms_node_[^"]+)"`).FindStringSubmatch(printed)
	if key == nil {
		t.Fatalf("the key is not shown:\n%s", printed)
	}
	words := append([]string{agent}, strings.Fields(starts)...)
	node := startChild(t, false, []string{"NODE_KEY=" + key[1]}, append(words, "--proxy-addr", grpc, "--engine-url", "http://"+ollama.address)...)
	storetest.Eventually(t, patience, "the agent has registered", func() bool { return node.logs(`"msg":"registered"`) })

	define, _, _ := strings.Cut(setUp, "\n\n") // README.md says that it is needed again
	answer, list, found := strings.Cut(blocks[2], "admin ListNodes")
	if !found {
		t.Fatalf("the third shell does not list the nodes: %q", blocks[2])
	}
	said := sh.run(answer)
	var whole struct {
		Model   string
		Choices []struct{ Message struct{ Content string } }
	}
	if json.Unmarshal([]byte(said), &whole) != nil || len(whole.Choices) != 1 || whole.Choices[0].Message.Content != ollama.address || whole.Model != manualModel {
		t.Errorf("the first answer is %s", said)
	}
	listed := sh.run(define + "\nadmin ListNodes" + list)
	for _, want := range []string{`"nodeId": "gpu-1"`, `"state": "NODE_STATE_HEALTHY"`, `"id": "llama3.2"`} {
		if !strings.Contains(listed, want) {
			t.Errorf("ListNodes does not say %s:\n%s", want, listed)
		}
	}
}
