package vendortest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what has to happen. It is long, since machines are slow; nothing waits for it
// to pass.
const patience = 10 * time.Second

// Upstream is a scripted server. It speaks HTTP/1.1, and HTTP/2 to those who begin with it.
type Upstream struct {
	// URL is its base URL.
	URL string

	tb     testing.TB
	server *httptest.Server
	done   chan struct{} // closed when the test ends; it frees whatever stalls

	mu       sync.Mutex
	replies  []Reply
	next     int // reply
	calls    []*Call
	arrived  chan struct{} // closed and replaced when a call arrives
	refusals int           // connections that get a GOAWAY
}

// Reply scripts what Upstream does with one call.
type Reply func(*Exchange)

// Call is what Upstream recorded of one call.
type Call struct {
	Method string
	Path   string
	Query  string
	Header http.Header
	Body   []byte
	// Conn tells connections apart.
	Conn string
	gone chan struct{}
}

// Gone is closed when the caller went away before the reply was complete.
func (c *Call) Gone() <-chan struct{} { return c.gone }

// NewUpstream starts a server that ends with the test.
func NewUpstream(tb testing.TB) *Upstream {
	tb.Helper()
	u := &Upstream{tb: tb, done: make(chan struct{}), arrived: make(chan struct{})}
	u.server = httptest.NewUnstartedServer(http.HandlerFunc(u.serve))
	u.server.Config.Protocols = new(http.Protocols)
	u.server.Config.Protocols.SetHTTP1(true)
	u.server.Config.Protocols.SetUnencryptedHTTP2(true)
	u.server.Listener = &listener{Listener: u.server.Listener, upstream: u}
	u.server.Start()
	u.URL = u.server.URL
	tb.Cleanup(func() {
		close(u.done)
		u.server.Close()
	})
	return u
}

// Reply appends to the script. Each call takes the next reply; the last one serves all further calls.
func (u *Upstream) Reply(replies ...Reply) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.replies = append(u.replies, replies...)
}

// Calls returns the calls so far.
func (u *Upstream) Calls() []*Call {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.calls)
}

// Await returns call number n, counted from 0, and waits for it if it has not come yet.
func (u *Upstream) Await(n int) *Call {
	u.tb.Helper()
	deadline := time.After(patience)
	for {
		u.mu.Lock()
		if n < len(u.calls) {
			defer u.mu.Unlock()
			return u.calls[n]
		}
		arrived := u.arrived
		u.mu.Unlock()
		select {
		case <-arrived:
		case <-deadline:
			u.tb.Fatalf("call %d never reached the upstream", n)
		}
	}
}

func (u *Upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller left while it still sent
	}
	call := &Call{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Body: body, Conn: r.RemoteAddr, gone: make(chan struct{})}
	stop := context.AfterFunc(r.Context(), func() { close(call.gone) })
	defer stop()
	reply := u.record(call)
	if reply == nil {
		http.Error(w, "nothing is scripted", http.StatusNotImplemented)
		return
	}
	reply(&Exchange{Call: call, w: w, ctrl: http.NewResponseController(w), upstream: u})
}

func (u *Upstream) record(call *Call) Reply {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls = append(u.calls, call)
	close(u.arrived)
	u.arrived = make(chan struct{})
	if len(u.replies) == 0 {
		return nil
	}
	reply := u.replies[min(u.next, len(u.replies)-1)]
	if u.next < len(u.replies) {
		u.next++
	}
	return reply
}

// listener takes away the connections that are to get a GOAWAY.
type listener struct {
	net.Listener
	upstream *Upstream
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || !l.upstream.takeRefusal() {
			return conn, err
		}
		go l.upstream.goAway(conn)
	}
}
