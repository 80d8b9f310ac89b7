package servertest_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2/connecthttp"

	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/store/storetest"
)

// TestLimits_ShutdownBooksWhatFinishes: when the process has ended, every call that it let finish is booked.
func TestLimits_ShutdownBooksWhatFinishes(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		const calls = 8
		t.Run("process", func(t *testing.T) { // whose end is the server's
			l := limitedBy(t, c, nil)
			release := make(chan struct{})
			arrived := make(chan struct{}, calls)
			l.script.on("m", func(w http.ResponseWriter, r *http.Request, stream bool) {
				arrived <- struct{}{}
				<-release
				answer(w, r, stream)
			})
			l.models(t, l.priced("m", nil))
			key := l.key(t, "app", nil)
			l.caps(t, "key", "app", "day", farNano)
			var running sync.WaitGroup
			for i := range calls {
				call := l.openai
				if i%2 == 0 {
					call = l.rpc(connecthttp.WithGRPC())
				}
				running.Go(func() {
					if got := call(context.WithoutCancel(t.Context()), t, key, ask{stream: i < calls/2}); !got.ok() || got.cost != callNano {
						t.Errorf("a call in flight: %+v", got)
					}
				})
			}
			for range calls {
				<-arrived
			}
			l.Stop()
			storetest.Eventually(t, patience, "new connections are refused", func() bool {
				resp, err := http.Get(l.HTTP + "/healthz")
				if err == nil {
					_ = resp.Body.Close()
				}
				return err != nil
			})
			close(release)
			running.Wait()
		})
		if s := c.money(t, "key", "app"); s.Settled != calls*callNano || s.Reserved != 0 {
			t.Errorf("after the end of the process %d are booked and %d reserved, want %d", s.Settled, s.Reserved, calls*callNano)
		}
	})
}

// TestLimits_ShutdownBooksWhatItCuts: what does not finish in time is a caller that left.
func TestLimits_ShutdownBooksWhatItCuts(t *testing.T) {
	t.Parallel()
	onBothMeters(t, func(t *testing.T, c counters) {
		var want int64
		t.Run("process", func(t *testing.T) {
			l := limitedBy(t, c, func(o *server.Options) { o.ShutdownTimeout = 500 * time.Millisecond })
			l.models(t, l.priced("m", nil))
			key := l.key(t, "app", nil)
			l.caps(t, "key", "app", "day", farNano)
			arrived := make(chan struct{})
			var running sync.WaitGroup
			for i, through := range []string{"openai", "grpc"} {
				call := l.openai
				if i == 1 {
					call = l.rpc(connecthttp.WithGRPC())
				}
				l.script.on("m", stalls(0, false)(func() { arrived <- struct{}{} }))
				running.Go(func() {
					if got := call(context.WithoutCancel(t.Context()), t, key, ask{}); got.ok() {
						t.Errorf("%s: the call was to be cut: %+v", through, got)
					}
				})
				<-arrived
				want += promptTokens * promptNano
				l.script.on("m", stalls(50, true)(func() {}))
				l.read(context.WithoutCancel(t.Context()), t, through, key, ask{}, 50)
				want += promptTokens*promptNano + fiftyWords*answerNano
			}
			if s := c.money(t, "key", "app"); s.Settled != 0 || s.Reserved == 0 {
				t.Errorf("before the end: %+v", s)
			}
			l.Stop()
			running.Wait()
		})
		if s := c.money(t, "key", "app"); s.Settled != want || s.Reserved != 0 {
			t.Errorf("after the end of the process %d are booked and %d reserved, want %d", s.Settled, s.Reserved, want)
		}
	})
}
