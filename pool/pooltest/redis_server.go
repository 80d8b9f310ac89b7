package pooltest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// redisWithin bounds the start of a server.
const redisWithin = time.Minute

// redisWatcher runs the server and ends it when its own standard input ends, which the kernel sees to when the test
// process is gone, however it went. It then removes the folder. A server that is paused ends as well.
const redisWatcher = `
folder=$1
shift
redis-server "$@" >"$folder/log" 2>&1 &
echo $!
cat >/dev/null
kill -KILL $!
wait $!
rm -rf "$folder"
`

// RedisServer is a throwaway server without persistence.
type RedisServer struct {
	// Addr is its host and port, which stay the same when it is started again.
	Addr string

	// config is the path of a configuration file, or empty.
	config   string
	settings []string
	port     int
	watcher  *exec.Cmd
	input    io.Closer
	pid      int
}

// startRedis starts a server on a free port.
func startRedis(config string, settings ...string) (*RedisServer, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, errors.New("there is no redis-server on the PATH: install it (Debian and Ubuntu: apt-get install " +
			"redis-server; macOS: brew install redis; Fedora: dnf install redis), or set " + RedisAddr +
			" for the tests that need no server of their own")
	}
	if err := checkRedis(); err != nil {
		return nil, err
	}
	for range 5 { // another process may take the port between the choice and the start
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		server := &RedisServer{Addr: "127.0.0.1:" + strconv.Itoa(port), config: config, settings: settings, port: port}
		taken, err := server.run()
		if err == nil {
			return server, nil
		}
		if !taken {
			return nil, err
		}
	}
	return nil, errors.New("no port stays free")
}

// oldestRedis is the oldest release that tests run on, since they make clusters and read statistics in its ways. The pool
// itself is content with 6.2.
const oldestRedis = 7

var redisVersion = regexp.MustCompile(`v=((\d+)\S*)`)

// checkRedis holds that the binary is new enough.
func checkRedis() error {
	said, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return fmt.Errorf("redis-server --version: %w", err)
	}
	found := redisVersion.FindSubmatch(said)
	if found == nil {
		return fmt.Errorf("redis-server --version says %q, which has no version", said)
	}
	if major, _ := strconv.Atoi(string(found[2])); major < oldestRedis {
		return fmt.Errorf("the tests need Redis %d or newer, and this redis-server is %s", oldestRedis, found[1])
	}
	return nil
}

// run starts the server and waits until it answers. It reports whether somebody else has its port.
func (s *RedisServer) run() (taken bool, err error) {
	folder, err := os.MkdirTemp("", "ktms-redis-")
	if err != nil {
		return false, err
	}
	arguments := []string{"-c", redisWatcher, "ktms-redis", folder}
	if s.config != "" {
		arguments = append(arguments, s.config)
	}
	arguments = append(arguments, "--port", strconv.Itoa(s.port), "--bind", "127.0.0.1",
		"--dir", folder, "--save", "", "--appendonly", "no")
	arguments = append(arguments, s.settings...)
	s.watcher = exec.Command("/bin/sh", arguments...)
	s.watcher.Dir = folder
	ownSession(s.watcher)
	input, err := s.watcher.StdinPipe()
	if err != nil {
		return false, err
	}
	output, err := s.watcher.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := s.watcher.Start(); err != nil {
		os.RemoveAll(folder)
		return false, err
	}
	s.input = input
	line, err := bufio.NewReader(output).ReadString('\n')
	if err == nil {
		s.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err == nil {
		taken, err = s.await(filepath.Join(folder, "log"))
	}
	if err != nil {
		s.end()
	}
	return taken, err
}

// await waits until the server answers, and not another one on the same port.
func (s *RedisServer) await(logged string) (taken bool, err error) {
	us := fmt.Sprintf("process_id:%d\r", s.pid)
	for deadline := time.Now().Add(redisWithin); ; {
		var answer string
		log, _ := os.ReadFile(logged)
		switch answer, err = Command(s.Addr, "INFO", "server"); {
		case err == nil && strings.Contains(answer, us):
			return false, nil
		case err != nil && strings.HasPrefix(err.Error(), "NOAUTH") && bytes.Contains(log, []byte("Ready to accept")):
			return false, nil
		case bytes.Contains(log, []byte("Address already in use")):
			return true, fmt.Errorf("the port is taken: %s", log)
		case time.Now().After(deadline) || bytes.Contains(log, []byte("FATAL")):
			return false, fmt.Errorf("the server does not answer: %w\n%s", err, log)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// end ends the server and waits until it is gone.
func (s *RedisServer) end() {
	if s.input != nil {
		s.input.Close()
		_ = s.watcher.Wait() // it says how the server went, which is by a signal
		s.input = nil
	}
}

// Stop ends the server at once, with all that it holds. Connections to it are refused.
func (s *RedisServer) Stop() { s.end() }

// Start starts a server that was stopped, at the same address.
func (s *RedisServer) Start(t testing.TB) {
	t.Helper()
	if _, err := s.run(); err != nil {
		t.Fatalf("start Redis again: %v", err)
	}
}

// Pause makes the server hang: it takes connections and questions, and does not answer.
func (s *RedisServer) Pause(t testing.TB) {
	t.Helper()
	if err := pauseProcess(s.pid); err != nil {
		t.Fatalf("pause Redis: %v", err)
	}
}

// Resume lets a server that hangs go on, with the questions that came meanwhile.
func (s *RedisServer) Resume(t testing.TB) {
	t.Helper()
	if err := resumeProcess(s.pid); err != nil {
		t.Fatalf("resume Redis: %v", err)
	}
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
