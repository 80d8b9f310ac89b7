package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ai-process/ktms/vendors"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		name    string
		headers []string
		want    time.Duration
	}{
		{"nothing", nil, 0},
		{"milliseconds", []string{"retry-after-ms", "1500"}, 1500 * time.Millisecond},
		{"milliseconds before seconds", []string{"retry-after-ms", "20", "retry-after", "9"}, 20 * time.Millisecond},
		{"seconds", []string{"retry-after", "7"}, 7 * time.Second},
		{"fraction", []string{"retry-after", " 0.25 "}, 250 * time.Millisecond},
		{"date", []string{"retry-after", date(90 * time.Second)}, 90 * time.Second},
		{"date by the sender's clock", []string{"retry-after", date(time.Hour + 30*time.Second), "date", date(time.Hour)}, 30 * time.Second},
		{"date in the past", []string{"retry-after", date(-time.Minute)}, 0},
		{"zero", []string{"retry-after", "0"}, 0},
		{"negative", []string{"retry-after", "-5", "retry-after-ms", "-1"}, 0},
		{"not a number", []string{"retry-after", "NaN"}, 0},
		{"infinite", []string{"retry-after", "Inf"}, 0},
		{"absurd", []string{"retry-after", "1e9"}, 0},
		{"absurd date", []string{"retry-after", date(400 * 24 * time.Hour)}, 0},
		{"garbage", []string{"retry-after", "soon"}, 0},
		{"nonsense falls through", []string{"retry-after-ms", "x", "retry-after", "x", "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "6m0s"}, 6 * time.Minute},
		{"longest of the used up", []string{"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "20ms",
			"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "2m59.56s"}, 2*time.Minute + 59560*time.Millisecond},
		{"only the used up", []string{"x-ratelimit-remaining-requests", "5", "x-ratelimit-reset-requests", "6h",
			"x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "1.5s"}, 1500 * time.Millisecond},
		{"reset in seconds", []string{"x-ratelimit-remaining-tokens-minute", "0", "x-ratelimit-reset-tokens-minute", "12"}, 12 * time.Second},
		{"reset as a time", []string{"anthropic-ratelimit-requests-remaining", "0", "anthropic-ratelimit-requests-reset", now.Add(time.Minute).Format(time.RFC3339)}, time.Minute},
		{"reset without remaining", []string{"x-ratelimit-reset-requests", "6m0s"}, 0},
		{"reset missing", []string{"x-ratelimit-remaining-requests", "0"}, 0},
	} {
		h := http.Header{}
		for i := 0; i < len(c.headers); i += 2 {
			h.Set(c.headers[i], c.headers[i+1])
		}
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRedact(t *testing.T) {
	key := vendors.NewSecret("canary-Key/1234567890+xyz")
	for _, text := range []string{
		"bad key canary-Key/1234567890+xyz", "bad key CANARY-KEY/1234567890+XYZ", "url ?k=canary-Key%2F1234567890%2Bxyz",
		"basic Y2FuYXJ5LUtleS8xMjM0NTY3ODkwK3h5eg==", "starts with canary-K…", "ends with …7890+xyz.", "canary-Key/canary-Key/",
	} {
		got := Redact(text, key)
		if !strings.Contains(got, secretMark) || strings.Contains(strings.ToLower(got), "canary") || strings.Contains(got, "890+xyz") {
			t.Errorf("%q became %q", text, got)
		}
	}
	for text, want := range map[string]string{
		"Incorrect API key provided: sk-proj-ab****wxyz. You can find": "Incorrect API key provided: [secret] You can find",
		"Authorization: Bearer abcdef123456":                           "[secret]",
		`{"api_key":"abcdefgh"}`:                                       `{"[secret]"}`,
		"key AKIAIOSFODNN7EXAMPLE is":                                  "key [secret] is",
		"AIzaSyA1234567890abcdefghij":                                  "[secret]",
		"token eyJhbGciOiJIUzI1NiJ9.eyJzdWIi.abc":                      "token [secret]",
		"max_tokens: 4096 is too large":                                "max_tokens: 4096 is too large",
		"nothing secret at all":                                        "nothing secret at all",
		"the desk-top and ask-me things":                               "the desk-top and ask-me things",
	} {
		if got := Redact(text, vendors.NewSecret("x")); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// Ordinary words have to stay: they are what the caller needs to mend a request.
func TestRedactLeavesWords(t *testing.T) {
	for text, want := range map[string]string{
		"The basic information is missing":             "The basic information is missing",
		"Basic Authentication is required":             "Basic Authentication is required",
		"the model sk-learn_models is not known":       "the model sk-learn_models is not known",
		"column pk_primary_key":                        "column pk_primary_key",
		"a bearer certificate":                         "a bearer certificate",
		"Bearer abcdefghijklmnopqrstuvwx":              "[secret]",
		"Basic dXNlcjpwYXNz1":                          "[secret]",
		"sk-ab****yz":                                  "[secret]",
		"authorization: basic dXNlcjpwYXNz":            "[secret]",
		"model ollama3 not found, try pulling ollamas": "model ollama3 not found, try pulling ollamas",
		"the model ollama/llama3 is not known":         "the model ollama/llama3 is not known",
		"wrong key ollama.":                            "wrong key [secret].",
	} {
		if got := Redact(text, vendors.NewSecret("ollama")); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// A vendor, or whoever answers in its place, may say megabytes.
func TestTextIsBounded(t *testing.T) {
	start := time.Now()
	said := Text(strings.Repeat("canary-K/12 ", 3<<20), vendors.NewSecret("canary-Key/1234567890+xyz"))
	if took := time.Since(start); took > 2*time.Second || len(said) > maxText+8 || strings.Contains(said, "canary") {
		t.Errorf("%s: %q", took, said)
	}
}

func TestText(t *testing.T) {
	for said, want := range map[string]string{
		"<!DOCTYPE html><html><head><title>502 Bad\nGateway</title></head><body>…": "an HTML page: 502 Bad Gateway",
		"<html><body><h1>Oh <b>no</b></h1>":                                        "an HTML page: Oh no",
		"<xml/>":                                                                   "an HTML page",
		" two\r\n\tlines\x00 ":                                                     "two lines",
		strings.Repeat("é", 400):                                                   strings.Repeat("é", 300) + "…",
		"":                                                                         "",
	} {
		if got := Text(said, vendors.Secret{}); got != want {
			t.Errorf("%q became %q", said, got)
		}
	}
}

func TestKindOf(t *testing.T) {
	for status, want := range map[int]vendors.Kind{
		301: vendors.Denied, 302: vendors.Denied, 308: vendors.Denied, 400: vendors.Invalid, 401: vendors.Denied, 402: vendors.Denied, 403: vendors.Denied, 404: vendors.Denied,
		405: vendors.Denied, 407: vendors.Denied, 410: vendors.Denied, 421: vendors.Denied, 451: vendors.Denied, 408: vendors.Unavailable, 409: vendors.Unavailable, 413: vendors.Overflow, 422: vendors.Invalid,
		429: vendors.RateLimited, 498: vendors.Unavailable, 500: vendors.Unavailable, 503: vendors.Unavailable, 529: vendors.Unavailable,
	} {
		if got := KindOf(status); got != want {
			t.Errorf("%d: %v, want %v", status, got, want)
		}
	}
}

func TestFailure(t *testing.T) {
	ctx := context.Background()
	op := func(op string, err error) error { return &net.OpError{Op: op, Net: "tcp", Err: err} }
	for _, c := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, "its host name cannot be resolved"},
		{op("dial", syscall.ECONNREFUSED), "the connection was refused"},
		{op("dial", syscall.ETIMEDOUT), "connecting timed out"},
		{op("dial", syscall.ENETUNREACH), "it cannot be reached"},
		{op("read", syscall.ECONNRESET), "the connection was reset"},
		{&tls.CertificateVerificationError{Err: errors.New("x")}, "its certificate is not trusted"},
		{tls.AlertError(40), "no TLS connection could be made"},
		{io.ErrUnexpectedEOF, "the connection was closed before the end of the answer"},
		{errors.New("http2: server sent GOAWAY and closed the connection"), "the connection was closed before the end of the answer"},
		{errors.New("whatever"), "the call could not be completed"},
	} {
		e := Failure(ctx, "openai", &url.Error{Op: "Post", URL: "https://h.example/?key=hidden", Err: c.err})
		if e.Kind != vendors.Unavailable || e.Message != c.want || strings.Contains(e.Error(), "hidden") || !errors.Is(e, c.err) {
			t.Errorf("%v: %v", c.err, e)
		}
	}
	gone := errors.New("gone")
	canceled, cancel := context.WithCancelCause(ctx)
	cancel(gone)
	if e := Failure(canceled, "openai", io.EOF); e.Kind != vendors.Canceled || !errors.Is(e, gone) {
		t.Errorf("canceled: %v", e)
	}
	known := &vendors.Error{Kind: vendors.Blocked}
	if e := Failure(ctx, "openai", known); e != known {
		t.Errorf("a known error became %v", e)
	}
}

// get calls h and reads the whole answer.
func get(t *testing.T, limits Limits, h http.HandlerFunc) (string, error) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c := NewClient(nil, limits)
	t.Cleanup(c.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return string(data), err
}

func TestLimits(t *testing.T) {
	const short, long = 20 * time.Millisecond, time.Minute
	stall := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	for _, c := range []struct {
		name    string
		limits  Limits
		handler http.HandlerFunc
		timeout bool
	}{
		{"no headers", Limits{FirstByte: short}, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}, true},
		{"headers alone", Limits{FirstByte: short}, stall, true},
		{"silence after the first byte", Limits{FirstByte: long, Silence: short}, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "a")
			stall(w, r)
		}, true},
		{"within the limits", Limits{FirstByte: long, Silence: long}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "ab")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := get(t, c.limits, c.handler)
			if errors.Is(err, ErrTimeout) != c.timeout {
				t.Errorf("%v", err)
			}
			if c.timeout {
				if e := Failure(t.Context(), "v", err); e.Kind != vendors.Unavailable || !strings.Contains(e.Message, "timed out") {
					t.Error(e)
				}
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	var seen []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect left the host, with %v", r.Header)
	}))
	defer elsewhere.Close()
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path)
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/get":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case "/moved":
			http.Redirect(w, r, "/", http.StatusPermanentRedirect)
		default:
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		}
	}))
	defer home.Close()
	c := NewClient(nil, Limits{})
	defer c.CloseIdleConnections()
	for path, want := range map[string]int{"/away": 307, "/get": 302, "/loop": 307, "/moved": 200} {
		req, _ := http.NewRequest(http.MethodPost, home.URL+path, strings.NewReader("body"))
		req.Header.Set("Authorization", "Bearer x")
		res, err := c.Do(req)
		if err != nil {
			t.Fatal(path, err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || want == 200 && string(body) != "body" {
			t.Errorf("%s: %d %q", path, res.StatusCode, body)
		}
	}
	if len(seen) > 4+maxRedirects+1 {
		t.Errorf("followed %v", seen)
	}
}

func TestErrorBodyIsBounded(t *testing.T) {
	res := &http.Response{Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 2*maxErrorBody)))}
	if n := len(ErrorBody(res)); n != maxErrorBody {
		t.Error(n)
	}
}
