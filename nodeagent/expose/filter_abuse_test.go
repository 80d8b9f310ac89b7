package expose

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// raw sends bytes and reads until the connection ends or a minute is over.
func raw(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return string(answer)
}

// TestTricks tries requests that net/http's own client does not make. None reaches another page of the engine.
func TestTricks(t *testing.T) {
	t.Parallel()
	address := front(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" && r.URL.Path != "/v1/chat/completions" {
			t.Errorf("the engine was asked for %s", r.URL)
		}
		if r.Header.Get("Upgrade") != "" || r.Header.Get("X-Http-Method-Override") != "" {
			t.Errorf("the engine saw %v", r.Header)
		}
		fmt.Fprint(w, "engine ", r.Method, " ", r.URL.Path)
	}, nil)
	head := "Host: x\r\nConnection: close\r\nAuthorization: Bearer " + key + "\r\n"
	for _, c := range []struct{ text, want string }{
		{"GET http://169.254.169.254/v1/models HTTP/1.1\r\n" + head + "\r\n", "engine GET /v1/models"}, // the host is never the caller's
		{"GET http://169.254.169.254/latest HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"GET /v1/%6dodels HTTP/1.1\r\n" + head + "\r\n", "engine GET /v1/models"},
		{"GET /v1/models%2f..%2f..%2fapi%2ftags HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"GET /v1/models;/../../api/tags HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"GET /v1/models\\..\\..\\api HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"GET /%2e%2e/v1/models HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"get /v1/models HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"HEAD /v1/models HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"CONNECT 127.0.0.1:11434 HTTP/1.1\r\n" + head + "\r\n", " 404 "},
		{"GET /v1/models HTTP/1.1\r\n" + head + "X-HTTP-Method-Override: DELETE\r\n\r\n", "engine GET /v1/models"},
		{"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key + "\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n", "engine GET /v1/models"},
		{"GET /v1/models HTTP/1.0\r\nAuthorization: Bearer " + key + "\r\n\r\n", "engine GET /v1/models"},
		{"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer no\r\nAuthorization: Bearer " + key + "\r\n\r\n", " 401 "},
		{"GET /v1/models?key=" + url.QueryEscape(key) + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", " 401 "},
		{"POST /v1/chat/completions HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", "engine POST /v1/chat/completions"},
		{"POST /v1/chat/completions HTTP/1.1\r\n" + head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\nGET /api/tags HTTP/1.1\r\n" + head + "\r\n", "engine POST /v1/chat/completions"},
		{"POST /v1/chat/completions HTTP/1.1\r\n" + head + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}", "engine POST /v1/chat/completions"},
	} {
		if got := raw(t, address, c.text); !strings.Contains(got, c.want) {
			t.Errorf("%q:\n%s\nwant %q", c.text, got, c.want)
		}
	}
}

// TestHugeHeaders are refused by the server before any of it is looked at.
func TestHugeHeaders(t *testing.T) {
	t.Parallel()
	engine := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }))
	t.Cleanup(engine.Close)
	e, _ := openExposure(t, engine.URL, "steady")
	got := raw(t, e.local(), "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+e.Token()+"\r\nX: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
	if !strings.Contains(got, " 431 ") {
		t.Errorf("%.200q", got)
	}
}

// TestRefusedBodies do not wait for the rest of a body that never comes, and count as no request of the node.
func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	var held *filter
	address := front(t, func(http.ResponseWriter, *http.Request) { t.Error("the engine was asked") }, func(f *filter) {
		held, f.bodyTimeout = f, 300*time.Millisecond
	})
	for _, c := range []struct{ token, path, status string }{
		{"wrong", "/v1/chat/completions", " 401 "},
		{key, "/api/pull", " 404 "},
		{key, "/v1/chat/completions", " 400 "},
	} {
		got := raw(t, address, "POST "+c.path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+c.token+"\r\nContent-Length: 100000\r\n\r\n{")
		if !strings.Contains(got, c.status) {
			t.Errorf("%s with %q: %q, want %s", c.path, c.token, got, c.status)
		}
	}
	eventually(t, "refused requests count as in flight", func() bool { return held.inFlight.Load() == 0 })
}

// TestStrangersDoNotCount keeps a node free to leave while somebody without the key knocks.
func TestStrangersDoNotCount(t *testing.T) {
	t.Parallel()
	f := newFilter(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, "", key, nil, nil)
	w := &countingWriter{f: f}
	f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	if w.status != http.StatusUnauthorized || w.most != 0 {
		t.Errorf("status %d, %d in flight", w.status, w.most)
	}
}

// countingWriter looks at the requests in flight when the answer is written.
type countingWriter struct {
	f      *filter
	status int
	most   int64
}

func (w *countingWriter) Header() http.Header { return http.Header{} }
func (w *countingWriter) WriteHeader(status int) {
	w.status, w.most = status, w.f.inFlight.Load()
}
func (w *countingWriter) Write(p []byte) (int, error) { return len(p), nil }

// TestSlowBodyInPieces takes a body that comes in pieces.
func TestSlowBodyInPieces(t *testing.T) {
	t.Parallel()
	address := front(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"model":"m","messages":[]}`
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", key, len(body))
	for i := range len(body) {
		io.WriteString(conn, body[i:i+1])
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, _ := io.ReadAll(resp.Body); string(got) != body {
		t.Errorf("the engine saw %q", got)
	}
}
