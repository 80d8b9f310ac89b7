package expose

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test's own program stand in for cloudflared, under a name that says how it behaves.
func TestMain(m *testing.M) {
	if behaviour, found := strings.CutPrefix(filepath.Base(os.Args[0]), "cloudflared-"); found {
		standIn(behaviour, filepath.Dir(os.Args[0]))
		return
	}
	os.Exit(m.Run())
}

// registered is what cloudflared says when it has a connection.
const registered = "Registered tunnel connection connIndex=0 connection=bb527b3a-8a27-467b-9fca-84972898be5c event=0 location=del04 protocol=quic"

// standIn is cloudflared. Each start adds a line to the file starts.
func standIn(behaviour, folder string) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	file, err := os.OpenFile(filepath.Join(folder, "starts"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(file, strings.Join(os.Args[1:], " "))
	starts, _ := os.ReadFile(file.Name())
	n := strings.Count(string(starts), "\n")
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "2026-11-30T12:00:00Z INF "+format+"\n", args...)
	}
	say("Requesting new quick Tunnel on https://api.trycloudflare.com/tunnel ...")
	switch behaviour {
	case "silent":
	case "refused":
		say(`failed to request quick Tunnel: Post "https://api.trycloudflare.com/tunnel": dial tcp: i/o timeout`)
		os.Exit(1)
	case "dies":
		say("|  https://start-%d.trycloudflare.com  |", n)
		say(registered)
		if n < 3 {
			os.Exit(3)
		}
	case "moves":
		say("%s|  https://first.trycloudflare.com  |", strings.Repeat("-", 3*maxLine))
		say("|  https://first.trycloudflare.com  |")
		say(registered)
		say("|  https://second-1.trycloudflare.com  |")
	case "older":
		say("|  https://start-%d.trycloudflare.com  |", n)
		say("Connection 5c313303-b31f-4cbe-96d7-3c111c8ac630 registered connIndex=1 location=DEN")
	case "wordless":
		say("|  https://start-%d.trycloudflare.com  |", n)
	case "json":
		fmt.Fprintf(os.Stderr, `{"level":"info","message":"|  https://start-%d.trycloudflare.com  |"}`+"\n", n)
		fmt.Fprintln(os.Stderr, `{"level":"info","connIndex":0,"message":"Registered tunnel connection"}`)
	case "blocked":
		say("|  https://start-%d.trycloudflare.com  |", n)
		say(`Failed to dial a quic connection error="failed to dial to edge with quic: timeout: no recent network activity" connIndex=0`)
		say("Retrying connection in up to 2s connIndex=0 event=0 ip=198.41.200.33")
	case "falls back":
		say("|  https://start-%d.trycloudflare.com  |", n)
		say(`Failed to dial a quic connection error="failed to dial to edge with quic: timeout: no recent network activity" connIndex=0`)
		say("Switching to fallback protocol http2 connIndex=0")
		say(registered)
	case "chatty":
		say("Request Headers map[Authorization:[Bearer secret]]")
		os.Exit(1)
	default:
		say("|  https://start-%d.trycloudflare.com  |", n)
		say(registered)
	}
	<-stop
	os.WriteFile(filepath.Join(folder, "stopped"), nil, 0o600)
}

// program is a stand-in in a folder of its own.
func program(t *testing.T, behaviour string) (path, folder string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	path = filepath.Join(folder, "cloudflared-"+behaviour)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path, folder
}

// moves collects a tunnel's addresses.
type moves struct {
	mu  sync.Mutex
	all []string
	log strings.Builder
}

func (m *moves) add(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, strings.TrimSuffix(strings.TrimPrefix(address, "https://"), ".trycloudflare.com"))
}

func (m *moves) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.log.Write(p)
}

func (m *moves) said() (addresses, log string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.all, ","), m.log.String()
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		behaviour      string
		addresses, log string
		// stopped says that the program runs at the end, and is asked to end.
		stopped bool
	}{
		{"steady", "start-1", "the tunnel is up", true},
		{"dies", "start-1,,start-2,,start-3", "exit status 3", true},
		{"moves", "first,second-1", "", true},
		{"older", "start-1", "the tunnel is up", true},
		{"json", "start-1", "the tunnel is up", true},
		{"wordless", "start-1", "the tunnel is up", true},
		{"falls back", "start-1", "the tunnel is up", true},
		{"blocked", ",", "outbound port 7844 may be blocked", false},
		{"chatty", ",", "Bearer [access key]", false},
		{"silent", ",", "named no address within", false},
		{"refused", ",", "its last words: 2026-11-30T12:00:00Z INF failed to request quick Tunnel", false},
	} {
		t.Run(c.behaviour, func(t *testing.T) {
			t.Parallel()
			path, folder := program(t, c.behaviour)
			m := &moves{}
			tunnel := tunnel{program: path, target: "http://127.0.0.1:1", moved: m.add, secret: "secret",
				log: slog.New(slog.NewTextHandler(m, &slog.HandlerOptions{Level: slog.LevelDebug})), firstPause: time.Millisecond}
			switch c.behaviour {
			case "silent":
				tunnel.urlTimeout = time.Second
			case "wordless":
				tunnel.assumeAfter = time.Millisecond
			case "blocked":
				tunnel.assumeAfter, tunnel.connectTimeout = time.Hour, time.Second
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				tunnel.run(ctx)
				close(ended)
			}()
			eventually(t, "the addresses never came", func() bool {
				addresses, _ := m.said()
				return strings.HasPrefix(addresses, c.addresses)
			})
			stop()
			<-ended
			addresses, log := m.said()
			if !strings.HasPrefix(addresses, c.addresses) || !strings.Contains(log, c.log) {
				t.Errorf("addresses %q, log %s", addresses, log)
			}
			if strings.Contains(log, "Bearer secret") {
				t.Errorf("the log says the access key: %s", log)
			}
			if last := addresses[strings.LastIndex(addresses, ",")+1:]; last != "" {
				t.Errorf("the address %q stays after the end", last)
			}
			if !c.stopped {
				return
			}
			if _, err := os.Stat(filepath.Join(folder, "stopped")); err != nil {
				t.Error("the program was not asked to end")
			}
			starts, _ := os.ReadFile(filepath.Join(folder, "starts"))
			if !strings.HasPrefix(string(starts), "tunnel --config /dev/null --no-autoupdate --url http://127.0.0.1:1\n") {
				t.Errorf("started as %q", starts)
			}
		})
	}
}

func TestMissingProgram(t *testing.T) {
	t.Parallel()
	m := &moves{}
	tunnel := tunnel{program: filepath.Join(t.TempDir(), "cloudflared"), log: slog.New(slog.NewTextHandler(m, nil)), moved: m.add, firstPause: time.Millisecond}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		tunnel.run(ctx)
		close(ended)
	}()
	eventually(t, "the log does not say what is missing", func() bool {
		_, log := m.said()
		return strings.Contains(log, "no such file or directory): install it, or name it with --cloudflared-path")
	})
	stop()
	<-ended
}

// running is an exposure whose tunnel is up.
type running struct {
	moves *moves
	stop  context.CancelFunc
	ended chan struct{}
}

func openExposure(t *testing.T, engine, behaviour string) (*Exposure, *running) {
	t.Helper()
	path, _ := program(t, behaviour)
	x := &running{moves: &moves{}, ended: make(chan struct{})}
	e, err := Open(t.Context(), Options{Engine: engine, Cloudflared: path, Log: slog.New(slog.NewTextHandler(x.moves, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, x.stop = context.WithCancel(t.Context())
	go func() {
		e.Run(ctx)
		close(x.ended)
	}()
	t.Cleanup(func() {
		x.stop()
		<-x.ended
	})
	<-e.Changed()
	return e, x
}

// local is where the tunnel leads to.
func (e *Exposure) local() string { return "http://" + e.listener.Addr().String() }

// TestExposure serves through the port that the tunnel leads to.
func TestExposure(t *testing.T) {
	t.Parallel()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) }))
	t.Cleanup(engine.Close)
	e, x := openExposure(t, engine.URL, "steady")
	if got := e.Address(); got != "https://start-1.trycloudflare.com/v1" {
		t.Errorf("address %q", got)
	}
	target := e.local()
	if status, text, _ := send(t, "GET", target+"/v1/models", "Bearer "+e.Token(), ""); status != 200 || text != "/v1/models" {
		t.Errorf("%d %q", status, text)
	}
	if status, _, _ := send(t, "GET", target+"/v1/models", "", ""); status != 401 {
		t.Errorf("without the key: %d", status)
	}
	if e.InFlight() != 0 {
		t.Errorf("%d requests in flight", e.InFlight())
	}
	x.stop()
	<-x.ended
	if _, log := x.moves.said(); strings.Contains(log, e.Token()) || len(e.Token()) < 20 {
		t.Error("the access key stands in the log, or is short")
	}
	if got := e.Address(); got != "" {
		t.Errorf("address %q after the end", got)
	}
	if resp, err := http.Get(target); err == nil {
		resp.Body.Close()
		t.Error("the port is open after the end")
	}
}
