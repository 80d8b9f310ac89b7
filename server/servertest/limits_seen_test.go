package servertest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
)

// ask is a call through any door.
type ask struct {
	// model is one by its name; empty lets the rules choose.
	model     string
	user      string
	maxTokens int32
	n         int32
	stream    bool
	// embed asks for embeddings of the same text.
	embed bool
}

// seen is what the caller sees of a call.
type seen struct {
	// code is 0 and http 200 for an answer.
	code    connect.Code
	http    int
	reason  string
	kind    string // the error's type over HTTP
	message string
	model   string
	cost    int64
	wait    time.Duration
	// again is the header x-should-retry.
	again string
	// rates are the headers x-ratelimit-*, without the beginning.
	rates map[string]string
}

func (s seen) ok() bool { return s.code == 0 && s.http == http.StatusOK }

// door makes a call with a key.
type door func(ctx context.Context, t *testing.T, key string, a ask) seen

// doors are all of them.
func (l *limited) doors() map[string]door {
	return map[string]door{
		"grpc":         l.rpc(connecthttp.WithGRPC()),
		"grpc-web":     l.rpc(connecthttp.WithGRPCWeb()),
		"connect":      l.rpc(),
		"connect-json": l.rpc(connecthttp.WithProtoJSON()),
		"openai":       l.openai,
	}
}

func (a ask) rpc() *ktmsv1.GenerateTextRequest {
	req := &ktmsv1.GenerateTextRequest{ModelOverride: a.model, MaxOutputTokens: a.maxTokens, Messages: lowRequest.GetMessages()}
	if a.model == "" {
		req.Effort = ktmsv1.Effort_EFFORT_LOW
	}
	if a.n > 0 {
		req.N = new(a.n)
	}
	if a.user != "" {
		req.Attributes = map[string]string{"user_id": a.user}
	}
	return req
}

// rpc is an RPC door.
func (l *limited) rpc(options ...connecthttp.Option) door {
	return func(ctx context.Context, t *testing.T, key string, a ask) seen {
		t.Helper()
		client := ktmsv1connect.NewGatewayServiceClient(l.Client(t, key, options...))
		ctx, info := connect.NewClientContext(ctx)
		out := seen{http: http.StatusOK}
		var err error
		switch {
		case a.embed:
			req := &ktmsv1.GetEmbeddingsRequest{Model: a.model, Inputs: []string{"a b c d e f"}, Attributes: a.rpc().GetAttributes()}
			var r *ktmsv1.GetEmbeddingsResponse
			r, err = client.GetEmbeddings(ctx, req)
			out.model, out.cost = r.GetResolvedModel(), r.GetUsage().GetCostNanousd()
		case a.stream:
			out.model, out.cost, err = streamed(ctx, client, a.rpc())
		default:
			var r *ktmsv1.GenerateTextResponse
			r, err = client.GenerateText(ctx, a.rpc())
			out.model, out.cost = r.GetResolvedModel(), r.GetUsage().GetCostNanousd()
		}
		out.rates = map[string]string{}
		ratesOf(out.rates, info.ResponseHeader().All())
		ratesOf(out.rates, info.ResponseTrailer().All()) // where gRPC puts headers that come with an error
		if err != nil {
			out.refused(t, err)
		}
		return out
	}
}

func streamed(ctx context.Context, client ktmsv1connect.GatewayServiceClient, req *ktmsv1.GenerateTextRequest) (model string, cost int64, err error) {
	stream, err := client.GenerateTextStream(ctx, &ktmsv1.GenerateTextStreamRequest{Request: req})
	if err != nil {
		return "", 0, err
	}
	defer stream.Close()
	for {
		chunk, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return model, cost, nil
		}
		if err != nil {
			return model, cost, err
		}
		if chunk.GetResolvedModel() != "" {
			model = chunk.GetResolvedModel()
		}
		if chunk.GetUsage() != nil {
			cost = chunk.GetUsage().GetCostNanousd()
		}
	}
}

// refused reads an RPC error and its details.
func (s *seen) refused(t *testing.T, err error) {
	t.Helper()
	var failed *connect.Error
	if !errors.As(err, &failed) {
		t.Fatalf("not an RPC error: %v", err)
	}
	s.code, s.message = failed.Code(), failed.Message()
	for _, detail := range failed.Details() {
		message, err := connectproto.UnmarshalErrorDetail(detail)
		if err != nil {
			t.Fatal(err)
		}
		switch d := message.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() != "ktms" {
				t.Errorf("the domain is %q", d.GetDomain())
			}
			s.reason = d.GetReason()
		case *errdetails.RetryInfo:
			s.wait = d.GetRetryDelay().AsDuration()
		}
	}
}

func ratesOf(into map[string]string, header iter.Seq2[string, []string]) {
	for name, values := range header {
		if rest, is := strings.CutPrefix(http.CanonicalHeaderKey(name), "X-Ratelimit-"); is {
			into[strings.ToLower(rest)] = values[0]
		}
	}
}

// openai is the HTTP door.
func (l *limited) openai(ctx context.Context, t *testing.T, key string, a ask) seen {
	t.Helper()
	body, path := map[string]any{"model": a.model}, "/v1/chat/completions"
	if a.embed {
		body["input"], path = "a b c d e f", "/v1/embeddings"
	} else {
		body["messages"] = []any{map[string]any{"role": "user", "content": "go on"}}
	}
	for name, value := range map[string]int32{"max_tokens": a.maxTokens, "n": a.n} {
		if value > 0 {
			body[name] = value
		}
	}
	if a.user != "" {
		body["user"] = a.user
	}
	if a.stream {
		body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.HTTP+path, bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return seen{code: connect.CodeCanceled, message: err.Error()} // the caller left
	}
	defer resp.Body.Close()
	out := seen{http: resp.StatusCode, again: resp.Header.Get("X-Should-Retry"), rates: map[string]string{}}
	ratesOf(out.rates, maps.All(resp.Header))
	if text := resp.Header.Get("Retry-After"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil {
			t.Errorf("Retry-After is %q", text)
		}
		out.wait = time.Duration(seconds) * time.Second
	}
	text, _ := io.ReadAll(resp.Body) // a stream that breaks shows in what came
	for line := range strings.Lines(string(text)) {
		var wire struct {
			Model string
			Usage *struct {
				Cost int64 `json:"cost_nanousd"`
			}
			Error *struct{ Message, Type, Code string }
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &wire) != nil {
			continue
		}
		if wire.Model != "" {
			out.model = wire.Model
		}
		if wire.Usage != nil {
			out.cost = wire.Usage.Cost
		}
		if wire.Error != nil {
			out.reason, out.kind, out.message = wire.Error.Code, wire.Error.Type, wire.Error.Message
		}
	}
	return out
}

// read reads so many chunks of a stream, and goes no further.
func (l *limited) read(ctx context.Context, t *testing.T, through, key string, a ask, chunks int) {
	t.Helper()
	if through != "openai" {
		stream, err := ktmsv1connect.NewGatewayServiceClient(l.Client(t, key, connecthttp.WithGRPC())).GenerateTextStream(ctx,
			&ktmsv1.GenerateTextStreamRequest{Request: a.rpc()})
		if err != nil {
			t.Fatal(err)
		}
		for range chunks {
			if _, err := stream.Receive(); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	body, err := json.Marshal(map[string]any{"model": "auto", "stream": true, "user": a.user, "messages": []any{map[string]any{"role": "user", "content": "go on"}}})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.HTTP+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	for n := 0; n < chunks && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			n++
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
}
