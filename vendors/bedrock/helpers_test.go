package bedrock

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/schemas"
	"github.com/aws/smithy-go/transport/http/protocol/restjson1"
	"google.golang.org/protobuf/encoding/prototext"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

const (
	testKey    = "AKIATESTACCESSKEY:the-secret-of-tests"
	testClaude = "anthropic.claude-opus-4-6-v1"
)

// carrier answers every call with the same, and keeps what was sent.
type carrier struct {
	status  int
	header  http.Header
	body    []byte
	request *http.Request
	sent    []byte
}

func (c *carrier) RoundTrip(req *http.Request) (*http.Response, error) {
	c.request = req
	c.sent, _ = io.ReadAll(req.Body)
	header := c.header
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: max(c.status, 200), Header: header, Body: io.NopCloser(bytes.NewReader(c.body)), Request: req}, nil
}

func target(model string) vendors.Target {
	return vendors.Target{Vendor: vendors.Bedrock, Model: model, Key: vendors.NewSecret(testKey)}
}

// requested is a request in prototext.
func requested(t testing.TB, text string) *ktmsv1.GenerateTextRequest {
	t.Helper()
	req := &ktmsv1.GenerateTextRequest{}
	if err := prototext.Unmarshal([]byte(text), req); err != nil {
		t.Fatal(err)
	}
	return req
}

const hello = `messages { role: MESSAGE_ROLE_USER text: "hello" } `

const okBody = `{"output":{"message":{"role":"assistant","content":[{"text":"ok"}]}},"stopReason":"end_turn"}`

// sent is the body that a request becomes, and what the answer's head says.
func sent(t testing.TB, to vendors.Target, text string) (string, vendors.Head, error) {
	t.Helper()
	c := &carrier{body: []byte(okBody)}
	answer, err := New(Options{Transport: c}).Generate(context.Background(), to, requested(t, text))
	if err != nil {
		return "", vendors.Head{}, err
	}
	return string(c.sent), answer.Head, nil
}

// answered is what becomes of a complete answer.
func answered(body string) (*ktmsv1.GenerateTextResponse, error) {
	c := &carrier{body: []byte(body)}
	req := &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "hello"}}}
	answer, err := New(Options{Transport: c}).Generate(context.Background(), target(testClaude), req)
	if err != nil {
		return nil, err
	}
	return answer.Response, nil
}

// event is one event of a stream: its kind and its payload.
type event struct{ kind, payload string }

func (e event) frame(t testing.TB) []byte {
	m := eventstream.Message{Payload: []byte(e.payload)}
	m.Headers.Set(":message-type", eventstream.StringValue("event"))
	m.Headers.Set(":event-type", eventstream.StringValue(e.kind))
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	var out bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// streamed is what becomes of a stream.
func streamed(t testing.TB, events ...event) ([]*ktmsv1.GenerateTextChunk, error) {
	var body []byte
	for _, e := range events {
		body = append(body, e.frame(t)...)
	}
	c := &carrier{body: body}
	req := &ktmsv1.GenerateTextRequest{Messages: []*ktmsv1.Message{{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "hello"}}}
	var chunks []*ktmsv1.GenerateTextChunk
	for e, err := range New(Options{Transport: c}).Stream(context.Background(), target(testClaude), req) {
		if err != nil {
			return chunks, err
		}
		if e.Chunk != nil {
			chunks = append(chunks, e.Chunk)
		}
	}
	return chunks, nil
}

// joined is the one choice of a stream, and its usage.
func joined(chunks []*ktmsv1.GenerateTextChunk) (*ktmsv1.Choice, *ktmsv1.TokensUsage) {
	out := &ktmsv1.Choice{}
	var usage *ktmsv1.TokensUsage
	for _, c := range chunks {
		out.Text += c.GetDelta()
		out.Reasoning += c.GetReasoningDelta()
		out.Opaque += c.GetOpaque()
		out.FinishReason += c.GetFinishReason()
		out.RawFinishReason += c.GetRawFinishReason()
		for _, piece := range c.GetToolCallChunks() {
			if int(piece.GetIndex()) == len(out.ToolCalls) {
				out.ToolCalls = append(out.ToolCalls, &ktmsv1.ToolCall{Id: piece.GetId(), Name: piece.GetName(), Type: piece.GetType()})
			}
			out.ToolCalls[piece.GetIndex()].Arguments += piece.GetArguments()
		}
		if c.GetUsage() != nil {
			usage = c.GetUsage()
		}
	}
	return out, usage
}

func quoted(text string) string {
	out, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// decoded is an event as the SDK reads it.
func decoded(t testing.TB, e event) any {
	out, err := restjson1.New(schemas.AmazonBedrockFrontendService).DeserializeEventMessage(
		schemas.ConverseStreamOutput, bedrockruntime.TypeRegistry, bytes.NewReader(e.frame(t)))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
