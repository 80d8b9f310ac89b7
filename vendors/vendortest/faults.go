package vendortest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ai-process/ktms/vendors"
)

// faultCases: the upstream breaks. Each is the vendor's fault, and none may pass for an answer.
var faultCases = []testCase{
	{name: "nobody listens", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				f.Fatal(err)
			}
			f.target.BaseURL = "http://" + l.Addr().String() + "/?secret=" + Key
			_ = l.Close()
			f.wants(call(f.Context()), vendors.Unavailable)
		})
	}},
	{name: "reset before the headers", run: func(f *fixture) { f.broken(func(x *Exchange) { x.Reset() }) }},
	{name: "cut before the headers", run: func(f *fixture) { f.broken(func(x *Exchange) { x.Cut() }) }},
	{name: "reset after the headers", run: func(f *fixture) {
		f.broken(func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
			x.Reset()
		})
	}},
	{name: "empty body", run: func(f *fixture) {
		f.broken(func(x *Exchange) { x.Start(http.StatusOK, "Content-Type", f.Script.StreamType) })
	}},
	{name: "HTML with a good status", run: func(f *fixture) {
		f.broken(Respond(http.StatusOK, "<html><body>Please log in.</body></html>\n\n", "Content-Type", "text/html"))
	}},
	{name: "not HTTP", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				f.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n"))
				_ = conn.Close()
			}()
			f.target.BaseURL = "http://" + l.Addr().String()
			f.wants(call(f.Context()), vendors.Unavailable)
		})
	}},
	{name: "unary body ends early", run: func(f *fixture) {
		body := f.Script.Body(hello())
		half := body[:len(body)/2]
		for name, end := range endings {
			f.Run(name, func(t *testing.T) {
				f := newFixture(t, f.Subject)
				f.up.Reply(func(x *Exchange) {
					x.Start(http.StatusOK, "Content-Type", f.Script.UnaryType)
					x.Write(half)
					end(x)
				})
				_, err := f.generate(f.Context(), request())
				f.wants(err, vendors.Unavailable)
			})
		}
	}},
	{name: "unary body is garbled", run: func(f *fixture) {
		f.up.Reply(f.answers(strings.Replace(f.Script.Body(hello()), "{", "{]", 1)))
		_, err := f.generate(f.Context(), request())
		f.wants(err, vendors.Unavailable)
	}},
	{name: "stream ends early", run: func(f *fixture) {
		stream := f.Script.Stream(hello())
		content := stream.Content
		whole := append(append([]string{}, stream.Preamble...), content...)
		within := append(append([]string{}, whole[:len(whole)-1]...), content[len(content)-1][:len(content[len(content)-1])/2])
		for where, pieces := range map[string][]string{
			"before any event": nil, "after the preamble": stream.Preamble, "between events": whole, "within an event": within,
		} {
			for how, end := range endings {
				f.Run(where+"/"+how, func(t *testing.T) {
					f := newFixture(t, f.Subject)
					// The caller has what came before the end: a reset may overtake it otherwise.
					want := strings.Join(hello().Text, "")
					if where != "between events" {
						want = ""
					}
					read := make(chan struct{})
					f.up.Reply(func(x *Exchange) {
						x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
						x.Write(pieces...)
						if want != "" {
							x.Wait(read)
						}
						end(x)
					})
					got := ""
					r := f.collect(f.Context(), request(), func(e vendors.Event) bool {
						if got += e.Chunk.GetDelta(); want != "" && e.Chunk.GetDelta() != "" && got == want {
							close(read)
						}
						return true
					})
					f.wants(r.err, vendors.Unavailable)
					if r.first().GetFinishReason() != "" {
						f.Error("a broken stream finished")
					}
				})
			}
		}
	}},
	{name: "cut after the finish", run: func(f *fixture) {
		stream := f.Script.Stream(hello())
		want := hello()
		if len(stream.Usage) > 0 {
			want.Usage = nil // it was to come
		}
		finished := make(chan struct{})
		f.up.Reply(func(x *Exchange) {
			x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
			x.Write(stream.Preamble...)
			x.Write(stream.Content...)
			x.Write(stream.Finish...)
			x.Wait(finished)
			x.Cut()
		})
		r := f.collect(f.Context(), request(), func(e vendors.Event) bool {
			if e.Chunk.GetFinishReason() != "" {
				close(finished)
			}
			return true
		})
		f.checkStream(r, want)
	}},
	{name: "garbage in a stream", run: func(f *fixture) {
		stream := f.Script.Stream(hello())
		f.up.Reply(f.streams(append(append(append([]string{}, stream.Preamble...), stream.Content[0], f.Script.Garbage), stream.Content[1:]...)...))
		r := f.stream(f.Context(), request())
		f.wants(r.err, vendors.Unavailable)
		if got := r.first().GetText(); got != hello().Text[0] {
			f.Errorf("text %q", got)
		}
	}},
	{name: "an error in a good answer", run: func(f *fixture) {
		for i, body := range f.Script.HiddenFailures {
			f.both(fmt.Sprint(i), func(f *fixture, call func(context.Context) error) {
				f.up.Reply(f.answers(body))
				f.wants(call(f.Context()), vendors.Unavailable)
			})
		}
	}},
	{name: "an error in a stream", run: func(f *fixture) {
		for i, piece := range f.Script.StreamFailures {
			f.Run(fmt.Sprint(i), func(t *testing.T) {
				f := newFixture(t, f.Subject)
				stream := f.Script.Stream(hello())
				before := append(append([]string{}, stream.Preamble...), stream.Content...)
				f.up.Reply(
					f.streams(append(append([]string{}, stream.Preamble...), piece)...),
					f.streams(append(before, piece)...),
					f.streams(append(append(before, piece), stream.End...)...),
				)
				r := f.stream(f.Context(), request())
				f.wants(r.err, vendors.Unavailable)
				if len(r.answers) > 0 {
					f.Errorf("content before the error: %v", r.answers)
				}
				for range 2 {
					r = f.stream(f.Context(), request())
					if e := f.wants(r.err, vendors.Unavailable); !strings.Contains(e.Message, "the engine is down") {
						f.Errorf("message %q", e.Message)
					}
					if got := r.first().GetText(); got != strings.Join(hello().Text, "") {
						f.Errorf("text before the error: %q", got)
					}
				}
			})
		}
	}},
	{name: "usage counts in a broken stream", needs: func(s *Script) bool { return len(s.Stream(hello()).Usage) > 0 }, run: func(f *fixture) {
		stream := f.Script.Stream(hello())
		f.up.Reply(f.streams(append(append(append([]string{}, stream.Content...), stream.Usage...), f.Script.Garbage)...))
		r := f.stream(f.Context(), request())
		f.wants(r.err, vendors.Unavailable)
		if r.usage.GetOutput() != hello().Usage.GetOutput() {
			f.Errorf("usage %v", r.usage)
		}
	}},
}

// endings are the ways in which a body ends before its time.
var endings = map[string]func(*Exchange){
	"reset": func(x *Exchange) { x.Reset() },
	"cut":   func(x *Exchange) { x.Cut() },
	"ended": func(*Exchange) {},
}

// broken checks that a reply is the vendor's failure, for both kinds of call.
func (f *fixture) broken(reply Reply) {
	f.both("", func(f *fixture, call func(context.Context) error) {
		f.up.Reply(reply)
		f.wants(call(f.Context()), vendors.Unavailable)
	})
}
