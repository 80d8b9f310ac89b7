package pooltest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// childOf names the variable that turns this test binary into the process that is killed.
const childOf = "KTMS_TEST_REDIS_CHILD"

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(redisWithin); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not so after %v: %s", redisWithin, what)
		}
	}
}

func ask(t *testing.T, address string, words ...string) string {
	t.Helper()
	answer, err := Command(address, words...)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// folderOf is where a server keeps its log.
func folderOf(t *testing.T, address string) string {
	t.Helper()
	_, folder, _ := strings.Cut(ask(t, address, "CONFIG", "GET", "dir"), "\n")
	return folder
}

// TestRedisEndsWithItsProcess kills a process like this one, which has no time to clean up, while its server hangs.
func TestRedisEndsWithItsProcess(t *testing.T) {
	if os.Getenv(childOf) != "" {
		server := StartRedis(t)
		folder := folderOf(t, server.Addr)
		server.Pause(t)
		fmt.Println(server.pid, server.Addr, folder)
		select {} // until it is killed
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), childOf+"=1")
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Process.Kill()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var address, folder string
	if _, err := fmt.Sscan(line, &pid, &address, &folder); err != nil {
		t.Fatal(line, err)
	}
	if _, err := os.Stat(folder); err != nil {
		t.Fatal(err)
	}

	child.Process.Kill()
	child.Wait()
	await(t, "the server and its folder are gone", func() bool {
		_, gone := os.Stat(folder)
		return os.IsNotExist(gone) && resumeProcess(pid) != nil
	})
}

func TestRedisStopsPausesAndComesBack(t *testing.T) {
	server := StartRedis(t)
	ask(t, server.Addr, "SET", "a", "1")
	server.Pause(t)
	answered := make(chan string, 1)
	go func() {
		answer, err := Command(server.Addr, "GET", "a")
		answered <- fmt.Sprint(answer, err)
	}()
	select {
	case answer := <-answered:
		t.Errorf("a server that hangs answers %s", answer)
	case <-time.After(200 * time.Millisecond):
	}
	server.Resume(t)
	if answer := <-answered; answer != "1<nil>" {
		t.Errorf("the question from before was answered with %s", answer)
	}
	server.Stop()
	if answer, err := Command(server.Addr, "GET", "a"); err == nil {
		t.Errorf("a server that was stopped answers %s", answer)
	}
	server.Start(t)
	if answer := ask(t, server.Addr, "GET", "a"); answer != "" {
		t.Errorf("a server without persistence kept %s", answer)
	}
}

func TestRedisIsShared(t *testing.T) {
	first, second := Redis(t), Redis(t)
	if first != second {
		t.Errorf("two servers, %s and %s", first, second)
	}
	if one, other := Prefix(t), Prefix(t); one == other {
		t.Errorf("the prefix %s came twice", one)
	}
	t.Setenv(RedisAddr, "redis.example:6379")
	if address := Redis(t); address != "redis.example:6379" {
		t.Errorf("%s is not the server that was named", address)
	}
}

func TestRedisWithoutABinary(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := startRedis(""); err == nil || !strings.Contains(err.Error(), "install it") || !strings.Contains(err.Error(), RedisAddr) {
		t.Errorf("%v does not say what to do", err)
	}
}

func TestRedisThatIsTooOld(t *testing.T) {
	folder := t.TempDir()
	for version, want := range map[string]string{
		"Redis server v=6.2.14 sha=0": "need Redis 7 or newer, and this redis-server is 6.2.14",
		"Redis server v=7.0.0 sha=0":  "",
		"Valkey server v=10.1.0 sha":  "",
		"a server":                    "has no version",
	} {
		script := "#!/bin/sh\necho '" + version + "'\n"
		if err := os.WriteFile(filepath.Join(folder, "redis-server"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", folder)
		if err := checkRedis(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
}

func TestCommandReplies(t *testing.T) {
	server := StartRedis(t)
	for _, test := range []struct{ question, answer string }{
		{"PING", "PONG"},
		{"ECHO a\nb", "a\nb"},
		{"GET none", ""},
		{"DBSIZE", "0"},
		{"RPUSH list a b", "2"},
		{"LRANGE list 0 -1", "a\nb"},
		{"LRANGE none 0 -1", ""},
	} {
		if got := ask(t, server.Addr, strings.Split(test.question, " ")...); got != test.answer {
			t.Errorf("%s: %q, want %q", test.question, got, test.answer)
		}
	}
	if answer, err := Command(server.Addr, "NOSUCH"); err == nil {
		t.Errorf("an error was answered as %q", answer)
	}
}

func TestClusterKnowsAllOfItsNodes(t *testing.T) {
	for _, address := range StartCluster(t) {
		info := ask(t, address, "CLUSTER", "INFO")
		for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:3"} {
			if !strings.Contains(info, want) {
				t.Errorf("%s has no %s:\n%s", address, want, info)
			}
		}
	}
}
