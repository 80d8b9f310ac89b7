// Command ktms-server is the gateway. "ktms-server dev" runs it on one machine without any set-up.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/lmittmann/tint"

	"github.com/ai-process/ktms/server"
)

// version is set by the release build.
var version = ""

const usage = `usage: ktms-server        serve, configured by the environment (README.md lists the variables)
       ktms-server dev    serve on this machine alone, without any set-up
       ktms-server --version`

// gcPercent replaces the runtime's 100, unless GOGC is set. The live heap is a few MiB, so at 100 the collector runs
// every few dozen calls: at 400 a call takes about a quarter less CPU, for about 20 MiB more under load
// (go run ./server/servertest/bench).
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ktms-server: "+indent(err.Error()))
		os.Exit(1)
	}
}

// run is the program: it returns when ctx ends and every call in flight has finished.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch strings.Join(args, " ") {
	case "":
		cfg, err := readConfig(false)
		if err != nil {
			return fmt.Errorf("the environment is not right:\n%w", err)
		}
		return serve(ctx, cfg, stderr, nil)
	case "dev":
		cfg, err := readConfig(true)
		if err != nil {
			return fmt.Errorf("the environment is not right:\n%w", err)
		}
		cfg.places = usualPlaces
		return serveDev(ctx, cfg, stdout, stderr)
	case "--version", "version":
		fmt.Fprintln(stdout, "ktms-server "+buildVersion())
		return nil
	default:
		return errors.New(usage)
	}
}

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// serve opens everything and runs until ctx ends. ready, if set, is called when all doors listen.
func serve(ctx context.Context, cfg config, stderr io.Writer, ready func(*server.Server)) error {
	log := newLogger(cfg.LogLevel, stderr)
	if cfg.LegacyKeys != "" {
		log.Warn("LLMPROXY_ENCRYPTION_KEYS is deprecated, use KTMS_ENCRYPTION_KEYS")
	}
	for _, u := range unbuilt {
		if wanted(u.name) {
			log.Warn("a variable has no effect: this release does not have the feature", "variable", u.name)
		}
	}
	if cfg.BootstrapKey != "" && cfg.BootstrapKey != devAdminKey {
		log.Warn("BOOTSTRAP_ADMIN_KEY is accepted as an admin key; unset it once a real admin key exists")
	}
	s, closeAll, err := assemble(ctx, cfg, log, stderr)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := s.Listen(); err != nil {
		return err
	}
	log.Info("ready", "version", buildVersion(), "grpc", s.Addr("grpc"), "http", s.Addr("http"), "metrics", s.Addr("metrics"))
	if ready != nil {
		ready(s)
	}
	return s.Run(ctx)
}

// newLogger writes JSON, or colours where a person reads along.
func newLogger(level string, w io.Writer) *slog.Logger {
	if file, ok := w.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return slog.New(tint.NewTextHandler(w, &tint.Options{Level: levels[level], TimeFormat: time.TimeOnly}))
		}
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: levels[level]}))
}
