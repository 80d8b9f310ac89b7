package vendortest

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
)

// hygieneCases: what goes out, and what must not come out.
var hygieneCases = []testCase{
	{name: "headers", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			f.up.Reply(Respond(http.StatusBadRequest, f.Script.Failure("no")))
			_ = call(f.Context())
			sent := f.up.Await(0)
			allowed := map[string]bool{"Accept": true, "Content-Length": true, "Content-Type": true, "User-Agent": true}
			for _, name := range f.Headers {
				allowed[http.CanonicalHeaderKey(name)] = true
			}
			for name, values := range sent.Header {
				if !allowed[name] {
					f.Errorf("header %s goes out: %q", name, values)
				}
			}
			if !strings.HasPrefix(sent.Header.Get("User-Agent"), "ktms") {
				f.Errorf("user agent %q", sent.Header.Get("User-Agent"))
			}
			f.checkSecret(sent.Path + "?" + sent.Query)
			if sent.Method != http.MethodPost || len(sent.Body) == 0 {
				f.Errorf("%s with %d bytes", sent.Method, len(sent.Body))
			}
		})
	}},
	{name: "the key in an error's body", run: func(f *fixture) {
		for name, shown := range map[string]string{
			"whole": Key, "upper case": strings.ToUpper(Key), "a part": Key[:12] + "…" + Key[len(Key)-12:],
			"escaped": url.QueryEscape(Key + "&"), "base64": base64.StdEncoding.EncodeToString([]byte(Key)),
		} {
			f.both(name, func(f *fixture, call func(context.Context) error) {
				f.up.Reply(Respond(http.StatusUnauthorized, f.Script.Failure("wrong key "+shown+" given"), "Content-Type", "application/json"))
				e := f.wants(call(f.Context()), vendors.Denied)
				if strings.Contains(e.Error(), shown) {
					f.Errorf("the key shows in %q", e.Error())
				}
				if !strings.Contains(e.Message, "wrong key") {
					f.Errorf("message %q", e.Message)
				}
			})
		}
	}},
	{name: "another key in an error's body", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			f.up.Reply(Respond(http.StatusUnauthorized, f.Script.Failure("wrong key sk-proj-0123456789abcdef"), "Content-Type", "application/json"))
			if e := f.wants(call(f.Context()), vendors.Denied); strings.Contains(e.Error(), "0123456789") {
				f.Errorf("%v", e)
			}
		})
	}},
	{name: "a host without a name", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			f.use(roundTripper(func(*http.Request) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "host.invalid", IsNotFound: true}}
			}))
			f.target.BaseURL += "/?key=" + Key
			f.wants(call(f.Context()), vendors.Unavailable)
		})
	}},
	{name: "a certificate that is not trusted", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { f.Error("the request went out") }))
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			s.StartTLS()
			defer s.Close()
			f.target.BaseURL = s.URL + "/?key=" + Key
			f.wants(call(f.Context()), vendors.Unavailable)
		})
	}},
	{name: "a key that no header can carry", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			f.target.Key = f.credential(Key + "\n")
			f.wants(call(f.Context()), vendors.Denied)
			if n := len(f.up.Calls()); n != 0 {
				f.Errorf("%d calls", n)
			}
		})
	}},
	{name: "a redirect to another host", run: func(f *fixture) {
		for _, status := range []string{"301", "302", "303", "307", "308"} {
			f.both(status, func(f *fixture, call func(context.Context) error) {
				elsewhere := NewUpstream(f)
				f.up.Reply(func(x *Exchange) {
					x.Start(map[string]int{"301": 301, "302": 302, "303": 303, "307": 307, "308": 308}[status], "Location", elsewhere.URL)
				})
				f.wants(call(f.Context()), vendors.Denied)
				if n := len(elsewhere.Calls()); n != 0 {
					f.Errorf("the other host was called %d times", n)
				}
			})
		}
	}},
	{name: "the request stays as it is", run: func(f *fixture) {
		f.up.Reply(f.answers(f.Script.Body(hello())), f.streams(f.Script.Stream(hello()).All()...))
		req := fullRequest()
		before := proto.Clone(req)
		if _, err := f.generate(f.Context(), req); err != nil {
			f.Error(err)
		}
		if r := f.stream(f.Context(), req); r.err != nil {
			f.Error(r.err)
		}
		if !proto.Equal(req, before) {
			f.Error("the request was changed")
		}
	}},
	{name: "many calls at once", run: func(f *fixture) {
		f.up.Reply(func(x *Exchange) {
			a := hello()
			a.Text = []string{x.Call.Path, "|", string(x.Call.Body)}
			if strings.Contains(x.Call.Header.Get("Accept"), "json") {
				f.answers(f.Script.Body(a))(x)
			} else {
				f.streams(f.Script.Stream(a).All()...)(x)
			}
		})
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				req := request()
				mark := "mark-" + string(rune('a'+i))
				req.Messages[0].Text = mark
				var text string
				if i%2 == 0 {
					if answer, err := f.generate(f.Context(), req); err != nil {
						f.Error(err)
					} else {
						text = answer.Response.GetChoices()[0].GetText()
					}
				} else {
					r := f.stream(f.Context(), req)
					if r.err != nil {
						f.Error(r.err)
					}
					text = r.first().GetText()
				}
				if !strings.Contains(text, mark) || strings.Count(text, "mark-") != 1 {
					f.Errorf("call %d was answered %q", i, text)
				}
			})
		}
		all.Wait()
	}},
	{name: "a server that goes away", run: func(f *fixture) {
		carrier := &http.Transport{Protocols: new(http.Protocols)}
		carrier.Protocols.SetUnencryptedHTTP2(true)
		f.use(carrier)
		f.Cleanup(carrier.CloseIdleConnections)
		f.up.GoAway(1)
		f.up.Reply(f.streams(f.Script.Stream(hello()).All()...), f.answers(f.Script.Body(hello())))
		f.checkStream(f.stream(f.Context(), request()), hello())
		answer, err := f.generate(f.Context(), request())
		f.checkUnary(answer, err, hello())
	}},
	{name: "leaving over HTTP/2", run: func(f *fixture) {
		carrier := &http.Transport{Protocols: new(http.Protocols)}
		carrier.Protocols.SetUnencryptedHTTP2(true)
		f.use(carrier)
		f.Cleanup(carrier.CloseIdleConnections)
		f.up.Reply(f.startThenStall())
		f.collect(f.Context(), request(), func(e vendors.Event) bool { return e.Chunk.GetDelta() == "" })
		f.checkGone()
	}},
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// fullRequest uses what every dialect has to deal with in some way.
func fullRequest() *ktmsv1.GenerateTextRequest {
	return &ktmsv1.GenerateTextRequest{
		ModelOverride: "m", BaseSystemInstruction: "base", RequestInstruction: "instruction", MaxOutputTokens: 100,
		Temperature: new(0.0), TopP: new(0.5), Stop: []string{"END"}, Seed: new(int64(0)), N: new(int32(1)),
		LogitBias: map[string]float64{"1": -100, "2": 0.5}, ParallelToolCalls: new(false),
		Tools: []*ktmsv1.Tool{{Name: "f", Description: "d", ParametersJson: `{"type":"object","properties":{}}`}},
		Messages: []*ktmsv1.Message{
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM, Text: "system"},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Parts: []*ktmsv1.ContentPart{{Part: &ktmsv1.ContentPart_Text{Text: "look"}}}},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT, ToolCalls: []*ktmsv1.ToolCall{{Id: "callnum01", Name: "f", Arguments: "{}"}}},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_TOOL, ToolCallId: "callnum01", Text: "done"},
			{Role: ktmsv1.MessageRole_MESSAGE_ROLE_USER, Text: "and now?"},
		},
	}
}
