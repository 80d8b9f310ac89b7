package servertest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// raw opens a connection and sends text on it.
func raw(t *testing.T, base, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAStrangersBodyThatNeverComesHoldsNothing(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	for _, base := range []string{s.HTTP + "/v1/chat/completions", s.GRPC + "/ktms.v1.GatewayService/GenerateText"} {
		host, path, _ := strings.Cut(strings.TrimPrefix(base, "http://"), "/")
		for _, framing := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			conn := raw(t, host, fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%s\r\n\r\n", path, framing))
			if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(conn)
			resp, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Errorf("%s with %s: no answer while the body stalls: %v", path, framing, err)
				continue
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %s: %d", path, framing, resp.StatusCode)
			}
			if _, err := reader.ReadByte(); err != io.EOF {
				t.Errorf("%s with %s: the connection stays open: %v", path, framing, err)
			}
		}
	}
}

func TestABodyThatStallsIsGivenUp(t *testing.T) {
	options := servertest.Defaults(t)
	options.APITimeout = 200 * time.Millisecond
	s := servertest.Start(t, options)
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", "http://127.0.0.1:1")}})
	for _, base := range []string{s.HTTP + "/v1/chat/completions", s.GRPC + "/ktms.v1.GatewayService/GenerateText", s.GRPC + "/grpc.health.v1.Health/Check", s.HTTP + "/healthz"} {
		host, path, _ := strings.Cut(strings.TrimPrefix(base, "http://"), "/")
		method := "POST"
		if path == "healthz" {
			method = "GET"
		}
		conn := raw(t, host, fmt.Sprintf("%s /%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", method, path, key))
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%s: the connection is held: %v", path, err)
		}
	}
}

func TestAStreamOutlivesTheBodysDeadline(t *testing.T) {
	options := servertest.Defaults(t)
	options.APITimeout = 200 * time.Millisecond
	s := servertest.Start(t, options)
	vendor := &endless{}
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", vendor.serve(t))}})
	stream, err := ktmsv1connect.NewGatewayServiceClient(s.Client(t, key)).GenerateTextStream(t.Context(), &ktmsv1.GenerateTextStreamRequest{Request: lowRequest})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for began := time.Now(); time.Since(began) < 5*options.APITimeout; {
		if _, err := stream.Receive(); err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
	}
	resp := post(t, s.HTTP, key, map[string]any{"model": "auto", "stream": true, "messages": []any{map[string]any{"role": "user", "content": "x"}}})
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for began := time.Now(); time.Since(began) < 5*options.APITimeout; {
		if !lines.Scan() {
			t.Fatalf("over HTTP, after %v: %v", time.Since(began), lines.Err())
		}
	}
}

func TestKeylessCallsAreSmall(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	code, _, body := request(t, http.MethodPost, s.GRPC+"/grpc.health.v1.Health/Check", "", `{"service":"`+strings.Repeat("x", 1<<20)+`"}`)
	if code != http.StatusTooManyRequests && code != http.StatusRequestEntityTooLarge {
		t.Errorf("a megabyte without a key: %d %.200s", code, body)
	}
}

func TestASlowReaderIsNotTheVendorsFault(t *testing.T) {
	options := servertest.Defaults(t)
	options.UpstreamTimeout = time.Second
	options.Breaker.Threshold = 1
	s := servertest.Start(t, options)
	// Events are small and made beforehand, so that the vendor is never slow, also under the race detector.
	event := `data: {"id":"x","choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 64<<10) + "\"},\"finish_reason\":null}]}\n\n"
	_, base := record(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 1600 { // far more than every buffer on the way holds
			if _, err := io.WriteString(w, event); err != nil {
				return
			}
		}
	})
	key := s.Configure(t, servertest.Setup{Models: []*ktmsv1.ModelSpec{servertest.Model("m", base)}})
	body := `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`
	conn := raw(t, s.HTTP, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body))
	storetest.Eventually(t, 5*time.Second, "the stream begins", func() bool { return active(t, s) == 1 })
	time.Sleep(3 * options.UpstreamTimeout) // nothing is read, for several times the watchdog's patience
	if active(t, s) != 1 {
		t.Fatal("the stream ended by itself: the test shows nothing")
	}
	// The reader goes on, so that whatever was decided meanwhile shows.
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, conn, 64<<20); err != nil {
		t.Errorf("the stream broke after %d bytes: %v", n, err)
	}
	r, err := s.Admin.ExplainRoute(t.Context(), &ktmsv1.ExplainRouteRequest{ApiKeyName: "client", ModelOverride: "m"})
	if err != nil || r.GetCandidates()[0].GetReason() != "" {
		t.Errorf("a slow reader closed the model to everybody: %v, %v", r, err)
	}
	_ = conn.Close()
	storetest.Eventually(t, 5*time.Second, "the call ends with its client", func() bool { return active(t, s) == 0 })
}
