package pooltest

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// RedisAddr names the environment variable with the host:port of a Redis without a password, to use instead of a
// throwaway one.
const RedisAddr = "KTMS_TEST_REDIS_ADDR"

// sharedRedis is the throwaway server of this process, started by the first test that needs one.
var sharedRedis = sync.OnceValues(func() (*RedisServer, error) { return startRedis("") })

// Redis returns the address of a real Redis that the tests of this process share; Prefix keeps them apart.
//
// It is the server that KTMS_TEST_REDIS_ADDR names, else a throwaway one that this process starts from the binary on the
// machine and that ends with it.
func Redis(t testing.TB) string {
	t.Helper()
	if address := os.Getenv(RedisAddr); address != "" {
		return address
	}
	server, err := sharedRedis()
	if err != nil {
		t.Fatalf("no Redis for this test: %v", err)
	}
	return server.Addr
}

// Prefix returns a key prefix that nobody else uses.
func Prefix(testing.TB) string { return "test-" + strings.ToLower(rand.Text()) + ":" }

// StartRedis starts a server of the test's own, which may be stopped and paused. It ends with the test. More settings
// are those of the command line, such as "--requirepass", "secret".
func StartRedis(t testing.TB, settings ...string) *RedisServer {
	t.Helper()
	return start(t, "", settings...)
}

// StartSentinel starts a Sentinel of the test's own from a configuration file, which it keeps its state in.
func StartSentinel(t testing.TB, config string) *RedisServer {
	t.Helper()
	return start(t, config, "--sentinel")
}

func start(t testing.TB, config string, settings ...string) *RedisServer {
	t.Helper()
	server, err := startRedis(config, settings...)
	if err != nil {
		t.Fatalf("no Redis for this test: %v", err)
	}
	t.Cleanup(server.end)
	return server
}

// Command asks a Redis one question on a connection of its own, and returns the reply, an array as one line for each
// element. An error reply is an error.
func Command(address string, words ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, commandWithin)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(commandWithin)); err != nil {
		return "", err
	}
	var question strings.Builder
	fmt.Fprintf(&question, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&question, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := conn.Write([]byte(question.String())); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

// commandWithin bounds a Command.
const commandWithin = 10 * time.Second

// readReply reads one reply of RESP2.
func readReply(from *bufio.Reader) (string, error) {
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+', ':':
		return text, nil
	case '-':
		return "", errors.New(text)
	}
	size, err := strconv.Atoi(text)
	if err != nil {
		return "", fmt.Errorf("a reply that is none: %q", line)
	}
	if kind == '$' {
		return readText(from, size)
	}
	var elements []string
	for range size {
		element, err := readReply(from)
		if err != nil {
			return "", err
		}
		elements = append(elements, element)
	}
	return strings.Join(elements, "\n"), nil
}

// readText reads what follows the size of a string; nothing follows where there is none.
func readText(from *bufio.Reader, size int) (string, error) {
	if size < 0 {
		return "", nil
	}
	text := make([]byte, size+len("\r\n"))
	for read := 0; read < len(text); {
		n, err := from.Read(text[read:])
		if err != nil {
			return "", err
		}
		read += n
	}
	return string(text[:size]), nil
}
