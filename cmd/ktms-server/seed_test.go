package main

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ai-process/ktms/server"
)

func TestAutoSeed_MakesUpAKeyAndPrintsItOnce(t *testing.T) {
	environment(t, with(map[string]string{"DATABASE_URL": "sqlite:" + filepath.Join(t.TempDir(), "ktms.db"),
		"KTMS_ENCRYPTION_KEYS": testKeyring, "AUTO_SEED": "true"}))
	made := regexp.MustCompile(`made up the client key dev-default, which is shown this once: (ktms_[0-9a-f]{48})\n`)
	var key string
	for start := range 2 {
		cfg, err := readConfig(false)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		printed, ready, done := &output{}, make(chan string, 1), make(chan error, 1)
		go func() { done <- serve(ctx, cfg, printed, func(s *server.Server) { ready <- s.Addr("http") }) }()
		addr := ""
		select {
		case addr = <-ready:
		case err := <-done:
			t.Fatal(err)
		}
		if found := made.FindStringSubmatch(printed.String()); found != nil {
			key = found[1]
		}
		// Without a vendor key the seeded models are there and cannot be called.
		code, _, text := post(t, "http://"+addr+"/v1/chat/completions", key, hello)
		if code != 400 || !strings.Contains(text, "no_vendor_key") {
			t.Errorf("start %d: %d %s", start, code, text)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if found := made.MatchString(printed.String()); found != (start == 0) || strings.Count(printed.String(), key) > 1 {
			t.Errorf("start %d printed:\n%s", start, printed)
		}
	}
}
