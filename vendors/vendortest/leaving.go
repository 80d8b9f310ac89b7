package vendortest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ai-process/ktms/vendors"
)

// noticed is how fast an upstream has to see that its caller left.
const noticed = time.Second

// leavingCases: whoever asked goes away. The upstream has to notice, whatever it is doing, and nobody is to blame.
var leavingCases = []testCase{
	{name: "before the headers", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			f.up.Reply(func(x *Exchange) { x.Stall() })
			f.leave(call, nil)
		})
	}},
	{name: "after the headers", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			sent := make(chan struct{})
			f.up.Reply(func(x *Exchange) {
				x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
				close(sent)
				x.Stall()
			})
			f.leave(call, sent)
		})
	}},
	{name: "within the body", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			sent := make(chan struct{})
			f.up.Reply(func(x *Exchange) {
				x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
				x.Write(f.Script.Stream(hello()).Content[0][:10])
				close(sent)
				x.Stall()
			})
			f.leave(call, sent)
		})
	}},
	{name: "within an error's body", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			sent := make(chan struct{})
			f.up.Reply(func(x *Exchange) {
				x.Start(http.StatusInternalServerError, "Content-Type", "application/json")
				x.Write("{")
				close(sent)
				x.Stall()
			})
			f.leave(call, sent)
		})
	}},
	{name: "after some events", run: func(f *fixture) {
		ctx, cancel := context.WithCancel(f.Context())
		f.up.Reply(f.startThenStall())
		r := f.collect(ctx, request(), func(e vendors.Event) bool {
			if e.Chunk.GetDelta() != "" {
				cancel()
			}
			return true
		})
		f.wants(r.err, vendors.Canceled)
		f.checkGone()
	}},
	{name: "by breaking out of the stream", run: func(f *fixture) {
		f.up.Reply(f.startThenStall())
		r := f.collect(f.Context(), request(), func(e vendors.Event) bool { return e.Chunk.GetDelta() == "" })
		if r.err != nil {
			f.Error(r.err)
		}
		f.checkGone()
	}},
	{name: "by breaking out at the head", run: func(f *fixture) {
		f.up.Reply(f.startThenStall())
		r := f.collect(f.Context(), request(), func(e vendors.Event) bool { return false })
		if r.err != nil || len(r.chunks) > 0 {
			f.Error(r.err)
		}
		f.checkGone()
	}},
	{name: "at a deadline", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			f.up.Reply(func(x *Exchange) { x.Stall() })
			ctx, cancel := context.WithTimeout(f.Context(), 50*time.Millisecond)
			defer cancel()
			e := f.wants(call(ctx), vendors.Canceled)
			if !errors.Is(e, context.DeadlineExceeded) {
				f.Errorf("the cause is lost: %v", e)
			}
		})
	}},
	{name: "before the call", run: func(f *fixture) {
		f.both("", func(f *fixture, call func(context.Context) error) {
			ctx, cancel := context.WithCancel(f.Context())
			cancel()
			f.wants(call(ctx), vendors.Canceled)
			if n := len(f.up.Calls()); n != 0 {
				f.Errorf("%d calls", n)
			}
		})
	}},
}

// startThenStall begins an answer and does not end it.
func (f *fixture) startThenStall() Reply {
	return func(x *Exchange) {
		stream := f.Script.Stream(hello())
		x.Start(http.StatusOK, "Content-Type", f.Script.StreamType)
		x.Write(stream.Preamble...)
		x.Write(stream.Content[:2]...)
		x.Stall()
	}
}

// leave cancels a call once it reached the upstream and the upstream reached a point.
func (f *fixture) leave(call func(context.Context) error, point <-chan struct{}) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	result := make(chan error, 1)
	go func() { result <- call(ctx) }()
	f.up.Await(0)
	if point != nil {
		f.await(point, "the upstream is not where it should be")
	}
	cancel()
	select {
	case err := <-result:
		f.wants(err, vendors.Canceled)
	case <-time.After(patience):
		f.Fatal("the call goes on")
	}
	f.checkGone()
}

func (f *fixture) checkGone() {
	f.Helper()
	select {
	case <-f.up.Await(0).Gone():
	case <-time.After(noticed):
		f.Errorf("the upstream did not see within %s that its caller left", noticed)
	}
}

func (f *fixture) await(signal <-chan struct{}, otherwise string) {
	f.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		f.Fatal(otherwise)
	}
}
