package expose

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress plays what the program says, with pauses, against a clock of its own.
func TestProgress(t *testing.T) {
	t.Parallel()
	const (
		url  = "INF |  https://a-b.trycloudflare.com  |"
		fail = `ERR Failed to dial a quic connection error="failed to dial to edge with quic: timeout: no recent network activity"`
	)
	for _, c := range []struct {
		name string
		// says are lines, and pauses between them.
		says []any
		// want is each address with the second in which it was told, and the end with its reason.
		want, cause string
	}{
		{"connected", []any{url, 2 * time.Second, registered}, "a-b@2", ""},
		{"connected at once, in one line", []any{url + " " + registered}, "a-b@0", ""},
		{"connected before the address", []any{registered, time.Second, url}, "a-b@1", ""},
		{"named again and again", []any{url, registered, url, time.Minute, url, registered}, "a-b@0", ""},
		{"unheard words", []any{url, time.Second, "INF all is well", time.Minute}, "a-b@15", ""},
		{"silence", []any{time.Hour}, "end@60", "named no address within 1m0s"},
		{"only the service's address", []any{"INF Requesting new quick Tunnel on https://api.trycloudflare.com/tunnel", time.Hour}, "end@60", "named no address"},
		{"somebody else's address", []any{"INF see https://developers.cloudflare.com and https://x.trycloudflare.company", time.Hour}, "end@60", "named no address"},
		{"blocked", []any{url, 5 * time.Second, fail, time.Hour}, "end@240", "outbound port 7844 may be blocked"},
		{"blocked, and then not", []any{url, 5 * time.Second, fail, time.Minute, registered, time.Hour}, "a-b@65", ""},
		{"another address", []any{url, registered, time.Minute, strings.ReplaceAll(url, "a-b", "c"), time.Hour}, "a-b@0 c@60", ""},
		{"an address late", []any{50 * time.Second, url, time.Second, registered, time.Hour}, "a-b@51", ""},
		{"a program that ends", []any{url}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var told []string
				note := func(what string) { told = append(told, fmt.Sprintf("%s@%.0f", what, time.Since(began).Seconds())) }
				tunnel := &tunnel{program: "cloudflared", log: slog.New(slog.DiscardHandler), urlTimeout: urlTimeout, connectTimeout: connectTimeout, assumeAfter: assumeAfter,
					moved: func(address string) {
						note(strings.TrimSuffix(strings.TrimPrefix(address, "https://"), ".trycloudflare.com"))
					}}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				context.AfterFunc(ctx, func() {
					if context.Cause(ctx) != context.Canceled {
						note("end")
					}
				})
				output, input := io.Pipe()
				go func() {
					defer input.Close()
					for _, what := range c.says {
						if line, ok := what.(string); ok {
							fmt.Fprintln(input, line)
						} else if pause, ok := what.(time.Duration); ok {
							time.Sleep(pause)
						}
					}
				}()
				p := newProgress(tunnel, cancel)
				p.read(output)
				p.end()
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := strings.Join(told, " "); got != c.want {
					t.Errorf("told %q, want %q", got, c.want)
				}
				if c.cause != "" && (context.Cause(ctx) == nil || !strings.Contains(context.Cause(ctx).Error(), c.cause)) {
					t.Errorf("ended with %v, want %q", context.Cause(ctx), c.cause)
				}
			})
		})
	}
}
