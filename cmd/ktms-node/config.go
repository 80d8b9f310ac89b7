package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ai-process/ktms/nodeagent/engine"
	"github.com/ai-process/ktms/nodeagent/registry"
)

// The ways to expose the engine.
const (
	exposeNone        = "none"
	exposeCloudflared = "cloudflared"
)

// The bounds of the gateway's registry: a node beyond them would be refused.
const (
	mostWeight     = 10_000
	mostConcurrent = 10_000
)

// config is what the command line and the environment say.
type config struct {
	proxyAddr      string
	tls            bool
	nodeID         string
	nodeName       string
	nodeKeyFile    string
	engine         string
	engineURL      string
	endpoint       string
	expose         string
	cloudflared    string
	baseWeight     int
	maxConcurrent  int
	judges         list
	only           list
	scheduleFile   string
	warmup         time.Duration
	model          string // the doctor's
	engineToken    string // NODE_AUTH_TOKEN
	key            string // NODE_KEY
	level          slog.Level
	parsedEndpoint string
}

// list is a flag that is repeated or separated by commas.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" && !slices.Contains(*l, part) {
			*l = append(*l, part)
		}
	}
	return nil
}

// environment looks variables up, as os.Getenv does.
type environment func(string) string

// flags are those of running and of the doctor.
func (c *config) flags() *flag.FlagSet {
	f := newFlags()
	f.StringVar(&c.proxyAddr, "proxy-addr", "127.0.0.1:9090", "the gateway's gRPC `address`, host:port")
	f.BoolVar(&c.tls, "tls", false, "dial the gateway over TLS with the system's CA roots")
	f.StringVar(&c.nodeID, "node-id", "", "the node's `id`, which the node key is bound to (default: the hostname)")
	f.StringVar(&c.nodeName, "node-name", "", "a `name` for people (default: the node's id)")
	f.StringVar(&c.nodeKeyFile, "node-key-file", "", "the `file` with the node key; else NODE_KEY holds it")
	f.StringVar(&c.engine, "engine", engine.Ollama, "the engine's `kind`: "+strings.Join(engine.Kinds, ", "))
	f.StringVar(&c.engineURL, "engine-url", "http://127.0.0.1:11434", "the `URL` at which the agent asks the engine")
	f.StringVar(&c.endpoint, "endpoint", "", "the `URL` at which the gateway dials the engine (default: --engine-url)")
	f.StringVar(&c.expose, "expose", exposeNone, "`how` the gateway reaches the engine: none (by --endpoint) or cloudflared (by a quick tunnel)")
	f.StringVar(&c.cloudflared, "cloudflared-path", "cloudflared", "the cloudflared `program`")
	f.IntVar(&c.baseWeight, "base-weight", 100, "the node's share of the requests, relative to other nodes")
	f.IntVar(&c.maxConcurrent, "max-concurrent", 1, "how many requests the node takes at once")
	f.Var(&c.judges, "judge-model", "a `model` that decides and judges (repeat, or separate with commas)")
	f.Var(&c.only, "only-model", "a `model` to report, and no others (repeat, or separate with commas)")
	f.StringVar(&c.scheduleFile, "schedule-file", "", "the `file` with load levels by local time")
	f.DurationVar(&c.warmup, "warmup", 5*time.Minute, "how long before a window the models are loaded again")
	return f
}

// newFlags reports mistakes to its caller alone.
func newFlags() *flag.FlagSet {
	f := flag.NewFlagSet("ktms-node", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	return f
}

// parseFlags answers --help with the usage.
func parseFlags(f *flag.FlagSet, args []string, out io.Writer) error {
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(out, usage+"\n\nflags:")
		f.SetOutput(out)
		f.PrintDefaults()
		fmt.Fprintln(out, environmentUsage)
		return err
	}
	if err != nil {
		err = fmt.Errorf("%w: ktms-node --help lists the flags", err)
	}
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("%q is neither a flag nor a command: ktms-node --help lists them", f.Arg(0))
	}
	return err
}

// parse reads the arguments and the environment. All mistakes are reported at once.
func (c *config) parse(f *flag.FlagSet, args []string, env environment, out io.Writer) error {
	if err := refuseKey(args); err != nil {
		return err
	}
	if err := parseFlags(f, args, out); err != nil {
		return err
	}
	c.key, c.engineToken = strings.TrimSpace(env("NODE_KEY")), strings.TrimSpace(env("NODE_AUTH_TOKEN"))
	return errors.Join(c.fill(), c.validate(), c.readLevel(env("LOG_LEVEL")))
}

// fill sets what follows from something else.
func (c *config) fill() error {
	if c.nodeID == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			return errors.New("this machine has no hostname: give --node-id")
		}
		c.nodeID = host
	}
	if c.nodeName == "" {
		c.nodeName = c.nodeID
	}
	return nil
}

func (c *config) validate() error {
	var wrong []error
	if _, err := registry.ParseTarget(c.proxyAddr, c.tls); err != nil {
		wrong = append(wrong, fmt.Errorf("--proxy-addr: %w", err))
	}
	if _, err := endpointURL(c.engineURL); err != nil {
		wrong = append(wrong, fmt.Errorf("--engine-url: %w", err))
	} else if _, err := c.newEngine(); err != nil {
		wrong = append(wrong, fmt.Errorf("--engine and --engine-url: %w", err))
	}
	switch c.expose {
	case exposeNone:
		parsed, err := endpointURL(cmp.Or(c.endpoint, c.engineURL))
		if err != nil && c.endpoint != "" {
			wrong = append(wrong, fmt.Errorf("--endpoint: %w", err))
		}
		c.parsedEndpoint = parsed
	case exposeCloudflared:
		if c.endpoint != "" {
			wrong = append(wrong, errors.New("--endpoint and --expose=cloudflared exclude each other: the tunnel has an address of its own"))
		}
	default:
		wrong = append(wrong, fmt.Errorf("--expose is %q: use none or cloudflared", c.expose))
	}
	if c.baseWeight < 1 || c.baseWeight > mostWeight {
		wrong = append(wrong, fmt.Errorf("--base-weight must be from 1 to %d", mostWeight))
	}
	if c.maxConcurrent < 1 || c.maxConcurrent > mostConcurrent {
		wrong = append(wrong, fmt.Errorf("--max-concurrent must be from 1 to %d", mostConcurrent))
	}
	if c.engineToken != "" && !isKey(c.engineToken) {
		wrong = append(wrong, errors.New("NODE_AUTH_TOKEN has blanks or letters that no header carries: it must be the token alone"))
	}
	if c.warmup < 0 || c.warmup > 24*time.Hour {
		wrong = append(wrong, errors.New("--warmup must be from 0 to 24h"))
	}
	return errors.Join(wrong...)
}

// endpointURL is the base URL of the engine's OpenAI side. An address without a path means the usual one.
func endpointURL(text string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", fmt.Errorf("%q is no URL: write it like http://10.10.0.15:11434/v1", text)
	}
	if u.User != nil {
		return "", errors.New("a password in an address is read by every user of this machine, and logged: give a token as NODE_AUTH_TOKEN")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q must end with the path, since the gateway appends its own", text)
	}
	if u.Path = strings.TrimRight(u.Path, "/"); u.Path == "" {
		u.Path = "/v1"
	}
	return u.String(), nil
}

// logLevels are the spellings of LOG_LEVEL.
var logLevels = map[string]slog.Level{
	"": slog.LevelInfo, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

func (c *config) readLevel(text string) error {
	level, known := logLevels[strings.ToLower(text)]
	if !known {
		return fmt.Errorf("LOG_LEVEL is %q: use debug, info, warn or error", text)
	}
	c.level = level
	return nil
}

func (c *config) selection() engine.Selection {
	return engine.Selection{Only: c.only, Judges: c.judges}
}

func (c *config) newEngine() (engine.Engine, error) {
	return engine.New(engine.Options{
		Kind: c.engine, URL: c.engineURL, AuthToken: c.engineToken,
		Names: slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.only, c.judges)))),
	})
}
