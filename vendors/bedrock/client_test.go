package bedrock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/ai-process/ktms/vendors"
)

func TestKeys(t *testing.T) {
	for key, want := range map[string]credential{
		"AKIA1:secret/+=":                  {"AKIA1", "secret/+=", "us-east-1", ""},
		"AKIA1:secret:eu-west-1":           {"AKIA1", "secret", "eu-west-1", ""},
		"AKIA1:secret::token":              {"AKIA1", "secret", "us-east-1", "token"},
		"AKIA1:secret:us-gov-west-1:to:en": {"AKIA1", "secret", "us-gov-west-1", "to:en"},
	} {
		to := target(testClaude)
		to.Key = vendors.NewSecret(key)
		if got, failed := parseKey(to); failed != nil || got != want {
			t.Errorf("%v %v", got, failed)
		}
	}
	for _, key := range []string{"", "AKIA1", "AKIA1:", ":secret", "AK IA:secret", "AKIA1:sec ret", "AKIA1:secret:evil.example/", "AKIA1:secret:-", "AKIA1:secret:us-east-1-", "AKIA1:secret:" + strings.Repeat("a", 64), "AKIA1:secret:us-east-1:to\nken"} {
		to := target(testClaude)
		to.Key = vendors.NewSecret(key)
		_, err := New(Options{Transport: &carrier{}}).Generate(t.Context(), to, requested(t, hello))
		var e *vendors.Error
		if !errors.As(err, &e) || e.Kind != vendors.Denied || !strings.Contains(e.Message, "access_key_id") || strings.Contains(e.Error(), "AKIA1") {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// TestShown: no part of a key shows, and the region stays readable.
func TestShown(t *testing.T) {
	c := credential{id: "AKIAIOSFODNN7EXAMPLE", secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", region: "eu-central-1", token: "IQoJb3JpZ2luX2VjEXAMPLETOKEN"}
	got := c.shown("no AKIAIOSFODNN7EXAMPLE with wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY and IQoJb3JpZ2luX2VjEXAMPLETOKEN in eu-central-1")
	if got != "no [secret] with [secret] and [secret] in eu-central-1" {
		t.Error(got)
	}
}

// TestRequest: the address, the headers and a signature that the vendor can verify, whatever the environment says.
func TestRequest(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_BEARER_TOKEN_BEDROCK": "bearer-of-the-environment", "AWS_ACCESS_KEY_ID": "AKIAOTHER", "AWS_REGION": "ap-south-1", "AWS_EXECUTION_ENV": "x",
		"AWS_ENDPOINT_URL": "https://elsewhere.example", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "https://elsewhere.example",
		"AWS_LAMBDA_FUNCTION_NAME": "f", "_X_AMZN_TRACE_ID": "Root=1", "AWS_USE_FIPS_ENDPOINT": "true",
	} {
		t.Setenv(name, value)
	}
	c := &carrier{body: []byte(okBody)}
	to := target("arn:aws:bedrock:eu-west-1:123456789012:inference-profile/eu.anthropic.claude-opus-4-6-v1")
	to.Key = vendors.NewSecret(testKey + ":eu-west-1:token-of-tests")
	if _, err := New(Options{Transport: c, Version: "1.2"}).Generate(t.Context(), to, requested(t, hello)); err != nil {
		t.Fatal(err)
	}
	address := c.request.URL.String()
	if address != "https://bedrock-runtime.eu-west-1.amazonaws.com/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Ainference-profile%2Feu.anthropic.claude-opus-4-6-v1/converse" {
		t.Error(address)
	}
	var names []string
	for name := range c.request.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"Accept", "Authorization", "Content-Type", "User-Agent", "X-Amz-Date", "X-Amz-Security-Token"}; !slices.Equal(names, want) {
		t.Errorf("headers %v", names)
	}
	if got := c.request.Header.Get("User-Agent"); got != "ktms/1.2" {
		t.Error(got)
	}

	// The same request, signed again.
	at, err := time.Parse("20060102T150405Z", c.request.Header.Get("X-Amz-Date"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, bytes.NewReader(c.sent))
	if err != nil {
		t.Fatal(err)
	}
	again.Header.Set("Content-Type", "application/json")
	sum := sha256.Sum256(c.sent)
	creds := aws.Credentials{AccessKeyID: "AKIATESTACCESSKEY", SecretAccessKey: "the-secret-of-tests", SessionToken: "token-of-tests"}
	if err := v4.NewSigner().SignHTTP(t.Context(), creds, again, hex.EncodeToString(sum[:]), "bedrock", "eu-west-1", at); err != nil {
		t.Fatal(err)
	}
	if got, want := c.request.Header.Get("Authorization"), again.Header.Get("Authorization"); got != want {
		t.Errorf("signature\n%s\nwant\n%s", got, want)
	}
}

func TestEndpoints(t *testing.T) {
	for base, want := range map[string]string{
		"https://vpce.example/": "https://vpce.example/model/m/converse", "http://localhost:1/proxy?x=1#f": "http://localhost:1/proxy/model/m/converse",
	} {
		c := &carrier{body: []byte(okBody)}
		to := target("m")
		to.BaseURL = base
		if _, err := New(Options{Transport: c}).Generate(t.Context(), to, requested(t, hello)); err != nil || c.request.URL.String() != want {
			t.Errorf("%s: %v %v", base, c.request.URL, err)
		}
	}
	for _, base := range []string{"ftp://x", "https://", "://", "vpce.example"} {
		to := target("m")
		to.BaseURL = base
		_, err := New(Options{Transport: &carrier{}}).Generate(t.Context(), to, requested(t, hello))
		var e *vendors.Error
		if !errors.As(err, &e) || e.Kind != vendors.Denied {
			t.Errorf("%s: %v", base, err)
		}
	}
}

// lingering is a body that does not end by itself.
type lingering struct {
	io.Reader

	closed chan struct{}
}

func (l *lingering) Read(p []byte) (int, error) {
	if n, err := l.Reader.Read(p); err == nil {
		return n, nil
	}
	<-l.closed
	return 0, io.ErrClosedPipe
}

func (l *lingering) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// TestLingeringStream: a server that keeps a stream open after its last event is not waited for.
func TestLingeringStream(t *testing.T) {
	var frames []byte
	for _, e := range []event{
		{"contentBlockDelta", `{"delta":{"text":"x"}}`}, {"messageStop", `{"stopReason":"end_turn"}`}, {"metadata", `{"usage":{"inputTokens":1,"outputTokens":1,"totalTokens":2}}`},
	} {
		frames = append(frames, e.frame(t)...)
	}
	v := New(Options{Transport: trip(func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: &lingering{bytes.NewReader(frames), make(chan struct{})}}, nil
	})})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for e, err := range v.Stream(ctx, target(testClaude), requested(t, hello)) {
		if err != nil {
			t.Error(e, err)
		}
	}
	if ctx.Err() != nil {
		t.Error("waited for the end")
	}
}

// TestSameRequest: a stream asks for the same as a complete answer.
func TestSameRequest(t *testing.T) {
	req := requested(t, hello+`base_system_instruction: "b" temperature: 0.5 top_k: 2 reasoning_effort: "low" service_tier: "flex" tools { name: "f" }
		response_schema_json: '{"type":"object","properties":{}}' extra_json: '{"guardrailConfig":{"guardrailIdentifier":"g","guardrailVersion":"1"}}'`)
	c := &carrier{body: []byte(okBody)}
	v := New(Options{Transport: c})
	if _, err := v.Generate(t.Context(), target(testClaude), req); err != nil {
		t.Fatal(err)
	}
	whole := c.sent
	for range v.Stream(t.Context(), target(testClaude), req) { // a head, and the error that this is no stream
	}
	if !bytes.Equal(whole, c.sent) || !strings.HasSuffix(c.request.URL.Path, "/converse-stream") || len(whole) < 300 {
		t.Errorf("%s\n%s\n%s", c.request.URL.Path, whole, c.sent)
	}
}
