package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/pool/pooltest"
	"github.com/ai-process/ktms/server/servertest"
)

// BenchmarkCall is a call through the whole server, with its client and the vendor in the same process, so that a profile
// shows where limits spend time: without limits, and under all that there are, counted in memory and on a Redis.
// server/servertest/bench measures the same from outside.
//
//	go test ./cmd/ktms-server -run '^$' -bench Call/redis -cpuprofile cpu.out -memprofile mem.out -memprofilerate 4096
//	go tool pprof -top -cum -focus 'server/admit|pool/redis' cpu.out
func BenchmarkCall(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, tillAnswer)
	}))
	defer upstream.Close()
	for _, where := range []string{"unlimited", "memory", "redis"} {
		b.Run(where, func(b *testing.B) {
			settings := map[string]string{}
			if where == "redis" {
				settings["REDIS_ADDR"], settings["REDIS_KEY_PREFIX"] = pooltest.Redis(b), pooltest.Prefix(b)
			}
			s := serveHere(b, settings)
			key, free := limitEverything(b, s, upstream.URL)
			model := "good"
			if where == "unlimited" {
				key, model = free, "unlimited"
			}
			body := `{"model":"` + model + `","user":"somebody","max_tokens":100,"messages":[{"role":"user","content":"` + strings.Repeat("go on ", 300) + `"}]}`
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.HTTP+"/v1/chat/completions", strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					req.Header.Set("Authorization", "Bearer "+key)
					req.Header.Set("Content-Type", "application/json")
					resp, err := http.DefaultClient.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					text, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						b.Errorf("%d %s", resp.StatusCode, text)
						return
					}
				}
			})
		})
	}
}

// serveHere serves in this process until the benchmark ends.
func serveHere(b *testing.B, settings map[string]string) *servertest.Instance {
	b.Helper()
	for name, value := range map[string]string{
		"DATABASE_URL": "sqlite:" + filepath.Join(b.TempDir(), "ktms.db"), "KTMS_ENCRYPTION_KEYS": testKeyring,
		"BOOTSTRAP_ADMIN_KEY": servertest.AdminKey, "HTTP_ADDR": "127.0.0.1:0", "GRPC_ADDR": "127.0.0.1:0", "METRICS_ADDR": "",
	} {
		b.Setenv(name, value)
	}
	for name, value := range settings {
		b.Setenv(name, value)
	}
	cfg, err := readConfig(false)
	if err != nil {
		b.Fatal(err)
	}
	s, closeAll, err := assemble(b.Context(), cfg, newLogger("info", io.Discard), io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(closeAll)
	if err := s.Listen(); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	i := &servertest.Instance{HTTP: "http://" + s.Addr("http"), GRPC: "http://" + s.Addr("grpc")}
	i.Admin = ktmsv1connect.NewAdminServiceClient(i.Client(b, servertest.AdminKey))
	return i
}
