// Command ktms-node runs beside an inference engine and brings the machine into the gateway's pool.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
	_ "time/tzdata" // a static binary finds the owner's time zone on machines without a zone database, too

	"github.com/ai-process/ktms/nodeagent"
	"github.com/ai-process/ktms/nodeagent/doctor"
	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/expose"
	"github.com/ai-process/ktms/nodeagent/probe"
	"github.com/ai-process/ktms/nodeagent/registry"
	"github.com/ai-process/ktms/nodeagent/schedule"
)

// version is set by the release build.
var version = ""

const usage = `usage: ktms-node [flags]                    serve; NODE_KEY or --node-key-file holds the node key
       ktms-node doctor [flags] [--model M]   say what keeps the node from serving; exits 1 on a problem
       ktms-node schedule --file FILE         check a schedule; print the level now and the next switch
       ktms-node --version
       ktms-node --help                       list the flags`

const environmentUsage = `
environment:
  NODE_KEY         the node key, unless --node-key-file gives it
  NODE_AUTH_TOKEN  the bearer token that the engine wants, if any
  LOG_LEVEL        debug, info (the default), warn or error`

func main() {
	ctx, hurry := signals()
	err := run(ctx, hurry, os.Args[1:], takeEnvironment(), os.Stdout, os.Stderr)
	if err != nil {
		if !errors.Is(err, errProblems) {
			fmt.Fprintln(os.Stderr, "ktms-node: "+strings.ReplaceAll(err.Error(), "\n", "\n  "))
		}
		os.Exit(1)
	}
}

// signals returns a context that the first signal to stop ends, and a channel that the second one closes. A third one ends
// the program as if nobody listened.
func signals() (ctx context.Context, hurry <-chan struct{}) {
	ctx, stop := context.WithCancel(context.Background())
	second := make(chan struct{})
	came := make(chan os.Signal, 2) // both of the two that are waited for
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-came
		stop()
		<-came
		signal.Stop(came)
		close(second)
	}()
	return ctx, second
}

// takeEnvironment takes the secrets out of the environment, which every program that the agent starts inherits.
func takeEnvironment() environment {
	taken := map[string]string{}
	for _, name := range []string{"NODE_KEY", "NODE_AUTH_TOKEN"} {
		taken[name] = os.Getenv(name)
		_ = os.Unsetenv(name) // fails for names that none of these is
	}
	return func(name string) string {
		if value, found := taken[name]; found {
			return value
		}
		return os.Getenv(name)
	}
}

// errProblems says that the doctor found something; what, it has printed.
var errProblems = errors.New("the doctor found a problem")

// errCutOff says that the agent left before its last request was done.
var errCutOff = errors.New("left at once, as a second signal asked")

// run is the program. The end of ctx asks the agent to leave, and a closed hurry asks it to do so at once.
func run(ctx context.Context, hurry <-chan struct{}, args []string, env environment, stdout, stderr io.Writer) error {
	command := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		command, args = args[0], args[1:]
	}
	var err error
	switch command {
	case "", "run":
		if len(args) == 1 && (args[0] == "--version" || args[0] == "-version") {
			return printVersion(stdout)
		}
		err = serve(ctx, hurry, args, env, stdout, stderr)
	case "doctor":
		err = examine(ctx, args, env, stdout)
	case "schedule":
		err = showSchedule(args, stdout)
	case "version":
		return printVersion(stdout)
	case "help":
		err = serve(ctx, hurry, []string{"--help"}, env, stdout, stderr)
	default:
		if refused := refuseKey([]string{command}); refused != nil {
			return refused
		}
		return fmt.Errorf("there is no command %q\n%s", command, usage)
	}
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return err
}

func printVersion(out io.Writer) error {
	_, err := fmt.Fprintln(out, "ktms-node "+buildVersion())
	return err
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

// serve runs the agent until ctx ends and the node has left.
func serve(ctx context.Context, hurry <-chan struct{}, args []string, env environment, stdout, stderr io.Writer) error {
	var c config
	if err := c.parse(c.flags(), args, env, stdout); err != nil {
		return err
	}
	key := c.keySource()
	if c.nodeKeyFile == "" {
		if _, err := key.get(); err != nil {
			return err // a file may still be written, an environment not
		}
	}
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: c.level}))
	if c.keyFileIsOpen() {
		log.Warn("other users of this machine can read the node key: chmod 600 the file", "file", c.nodeKeyFile)
	}
	driver, err := c.newEngine()
	if err != nil {
		return err
	}
	client, err := registry.Dial(registry.Options{Address: c.proxyAddr, TLS: c.tls, Key: key.get})
	if err != nil {
		return err
	}
	o := nodeagent.Options{
		NodeID: c.nodeID, Name: c.nodeName, Kind: c.engine, Selection: c.selection(),
		Endpoint: c.parsedEndpoint, AuthToken: c.engineToken,
		BaseWeight: int32(c.baseWeight), MaxConcurrent: int32(c.maxConcurrent), Warmup: c.warmup, Version: buildVersion(),
		Registry: client, Engine: driver, GPUs: probe.NewSampler(probe.Prober{}.GPUs).Latest, Hurry: hurry, Log: log,
	}
	// What serves the agent outlives the signal, since the agent still drains.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer stop()
	level := func() int { return schedule.Full }
	if c.scheduleFile != "" {
		file := schedule.Follow(c.scheduleFile, log)
		helpers.Go(func() { file.Run(work) })
		o.Schedule = file.Current
		level = func() int { return file.Current().Level(time.Now()) }
	}
	if c.expose == exposeCloudflared {
		exposure, err := expose.Open(ctx, expose.Options{
			Engine: c.engineURL, EngineToken: c.engineToken, Cloudflared: c.cloudflared, Level: level, Log: log,
		})
		if err != nil {
			return err
		}
		defer exposure.Close()
		o.Exposure = exposure
	}
	log.Info("ktms-node starts", "version", o.Version, "node_id", c.nodeID, "gateway", c.proxyAddr, "engine", c.engine, "expose", c.expose)
	nodeagent.New(o).Run(ctx)
	select {
	case <-hurry:
		return errCutOff
	default:
		return nil
	}
}

// examine runs the doctor.
func examine(ctx context.Context, args []string, env environment, out io.Writer) error {
	var c config
	flags := c.flags()
	flags.StringVar(&c.model, "model", "", "a `model` that must be there and loaded")
	if err := c.parse(flags, args, env, out); err != nil {
		return err
	}
	target, err := registry.ParseTarget(c.proxyAddr, c.tls)
	if err != nil {
		return err
	}
	client, err := registry.Dial(registry.Options{Address: c.proxyAddr, TLS: c.tls, Key: c.keySource().get})
	if err != nil {
		return err
	}
	driver, err := c.newEngine()
	if err != nil {
		return err
	}
	o := doctor.Options{
		NodeID: c.nodeID, Kind: c.engine, EngineURL: c.engineURL, Engine: driver, Selection: c.selection(), Model: c.model,
		Endpoint: c.parsedEndpoint, ScheduleFile: c.scheduleFile, Target: target, Registry: client,
		Machine: doctor.Machine{
			OS: runtime.GOOS, Run: probe.RunTool, Dial: (&net.Dialer{}).DialContext, GPUs: probe.Prober{}.GPUs, Now: time.Now(),
		},
	}
	if c.expose == exposeCloudflared {
		o.Cloudflared = c.cloudflared
	} else if o.Reachable, err = engine.New(engine.Options{Kind: engine.Generic, URL: c.parsedEndpoint, AuthToken: c.engineToken}); err != nil {
		return err
	}
	if doctor.Examine(ctx, o, out) > 0 {
		return errProblems
	}
	return nil
}

// showSchedule checks a file of rules.
func showSchedule(args []string, out io.Writer) error {
	flags := newFlags()
	path := flags.String("file", "", "the `file` to check")
	if err := parseFlags(flags, args, out); err != nil {
		return err
	}
	if *path == "" {
		return errors.New("usage: ktms-node schedule --file FILE")
	}
	s, err := schedule.Read(*path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, s.Describe(time.Now()))
	return err
}
