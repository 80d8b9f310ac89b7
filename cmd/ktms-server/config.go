package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/ai-process/ktms/pool/selection"
	"github.com/ai-process/ktms/server/access"
	"github.com/ai-process/ktms/store/seal"
)

// config is the process configuration, all of it from the environment. README.md lists the variables.
type config struct {
	DatabaseURL    string `env:"DATABASE_URL"`
	EncryptionKeys string `env:"KTMS_ENCRYPTION_KEYS"`
	LegacyKeys     string `env:"LLMPROXY_ENCRYPTION_KEYS"`

	GRPCAddr       string        `env:"GRPC_ADDR" envDefault:":9090"`
	MaxMessage     int64         `env:"GRPC_MAX_RECV_MSG_SIZE" envDefault:"16777216"`
	HTTPAddr       string        `env:"HTTP_ADDR" envDefault:":8080"`
	APIEnabled     bool          `env:"HTTP_API_ENABLED" envDefault:"true"`
	APITimeout     time.Duration `env:"HTTP_API_TIMEOUT" envDefault:"5m"`
	MaxBody        int64         `env:"HTTP_API_MAX_BODY_SIZE" envDefault:"33554432"`
	MetricsAddr    string        `env:"METRICS_ADDR" envDefault:":9091"`
	LogLevel       string        `env:"LOG_LEVEL" envDefault:"info"`
	Shutdown       time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"30s"`
	CORSOrigins    []string      `env:"CORS_ALLOWED_ORIGINS"`
	ReflectionKey  bool          `env:"REFLECTION_REQUIRES_KEY" envDefault:"false"`
	LegacyHeaders  bool          `env:"LEGACY_HEADERS" envDefault:"true"`
	MaxConns       int           `env:"DB_MAX_CONNS" envDefault:"25"`
	MinConns       int           `env:"DB_MIN_CONNS" envDefault:"5"`
	DBTimeout      time.Duration `env:"DB_TIMEOUT" envDefault:"3s"`
	StaleIfError   time.Duration `env:"AUTH_STALE_IF_ERROR" envDefault:"5m"`
	ReloadSeconds  int           `env:"ROUTING_RELOAD_SECONDS" envDefault:"60"`
	AutoMigrate    bool          `env:"AUTO_MIGRATE" envDefault:"true"`
	MigrateTimeout time.Duration `env:"MIGRATE_TIMEOUT" envDefault:"3m"`
	BootstrapKey   string        `env:"BOOTSTRAP_ADMIN_KEY"`

	RedisAddr     string        `env:"REDIS_ADDR"`
	RedisPassword string        `env:"REDIS_PASSWORD"`
	RedisDB       int           `env:"REDIS_DB" envDefault:"0"`
	RedisPrefix   string        `env:"REDIS_KEY_PREFIX"`
	RedisTimeout  time.Duration `env:"REDIS_TIMEOUT" envDefault:"500ms"`
	BudgetGrace   float64       `env:"BUDGET_GRACE_MARGIN" envDefault:"0.05"`
	SpendFailMode string        `env:"SPEND_LIMITS_FAIL_MODE" envDefault:"open"`
	OutputReserve int64         `env:"SPEND_DEFAULT_OUTPUT_RESERVE_TOKENS" envDefault:"4096"`

	BreakerEnabled   bool          `env:"CIRCUIT_BREAKER_ENABLED" envDefault:"true"`
	BreakerThreshold int           `env:"CIRCUIT_BREAKER_FAIL_THRESHOLD" envDefault:"5"`
	BreakerCooldown  time.Duration `env:"CIRCUIT_BREAKER_COOLDOWN" envDefault:"30s"`
	UpstreamTimeout  time.Duration `env:"UPSTREAM_REQUEST_TIMEOUT" envDefault:"0"`
	ConnectTimeout   time.Duration `env:"UPSTREAM_CONNECT_TIMEOUT" envDefault:"10s"`
	FirstByteTimeout time.Duration `env:"UPSTREAM_FIRST_BYTE_TIMEOUT" envDefault:"0"`
	SilenceTimeout   time.Duration `env:"UPSTREAM_SILENCE_TIMEOUT" envDefault:"0"`
	MaxPause         time.Duration `env:"VENDOR_COOLDOWN_MAX" envDefault:"5m"`

	NodeInterval  int           `env:"NODE_HEARTBEAT_INTERVAL_SECONDS" envDefault:"5"`
	NodeTTL       int           `env:"NODE_HEARTBEAT_TTL_SECONDS" envDefault:"15"`
	NodeRetention int           `env:"NODE_RETENTION_TTL_DAYS" envDefault:"1"`
	NodeSweep     time.Duration `env:"NODE_SWEEP_INTERVAL" envDefault:"5s"`
	NodeLocalhost bool          `env:"NODE_ALLOW_LOCALHOST_ENDPOINTS" envDefault:"false"`
	NodeAffinity  float64       `env:"NODE_PREFIX_AFFINITY" envDefault:"4"`

	AutoSeed       bool   `env:"AUTO_SEED" envDefault:"false"`
	SeedClientKey  string `env:"SEED_CLIENT_KEY"`
	SeedClientName string `env:"SEED_CLIENT_NAME" envDefault:"dev-default"`
	SeedOpenAI     string `env:"SEED_OPENAI_KEY"`
	SeedGemini     string `env:"SEED_GEMINI_KEY"`
	SeedAnthropic  string `env:"SEED_ANTHROPIC_KEY"`
	OpenAIKey      string `env:"OPENAI_API_KEY"`
	GeminiKey      string `env:"GEMINI_API_KEY"`
	AnthropicKey   string `env:"ANTHROPIC_API_KEY"`
	OpenAIURL      string `env:"OPENAI_BASE_URL"`
	GeminiURL      string `env:"GEMINI_BASE_URL"`
	AnthropicURL   string `env:"ANTHROPIC_BASE_URL"`

	AllowRemote bool `env:"DEV_ALLOW_REMOTE" envDefault:"false"`
	// dev is set by ktms-server dev, places is where it looks for local engines.
	dev    bool
	places []place
	// lease is how long a reservation outlives its replica; 0 is the usual time. Tests set it.
	lease time.Duration
}

// What SPEND_LIMITS_FAIL_MODE may be.
const (
	spendOpen   = "open"
	spendClosed = "closed"
)

// maxGrace is the largest part of a budget that may be overdrawn: more would be another budget.
const maxGrace = 1

const (
	// maxNodeSeconds is a day: a node that may be silent for longer is none to send a request to.
	maxNodeSeconds = 24 * 60 * 60
	// maxNodeDays is ten years. A number that no clock counts to would silently become another one.
	maxNodeDays = 3650
)

// unbuilt are variables of the manual whose feature this release does not have. Setting one is said at start rather
// than ignored; the guarded ones would leave an operator unprotected, so they are refused.
var unbuilt = []struct {
	name    string
	guarded bool
}{
	{"USAGE_COLLECTOR_HOST", false}, {"SENTRY_DSN", false}, {"OTEL_EXPORTER_OTLP_ENDPOINT", false},
	{"CACHE_ENABLED", false}, {"SEMANTIC_CACHE_ENABLED", false}, {"GUARDRAILS_ENABLED", true}, {"GUARDRAILS_LATENT_ENABLED", true},
}

// readConfig reads the environment and reports every mistake in it at once.
func readConfig(dev bool) (config, error) {
	cfg, err := env.ParseAs[config]()
	mistakes, unread := parseMistakes(err)
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }

	if cfg.EncryptionKeys == "" {
		cfg.EncryptionKeys = cfg.LegacyKeys
	}
	if set, found := os.LookupEnv("METRICS_ADDR"); found {
		cfg.MetricsAddr = set // empty disables it, where the parser would take the default
	}
	if !dev {
		if cfg.DatabaseURL == "" {
			wrong("DATABASE_URL is required: a postgres:// URL, or sqlite:PATH for one machine")
		} else if !slices.Contains([]string{"postgres", "postgresql", "sqlite"}, scheme(cfg.DatabaseURL)) {
			wrong("DATABASE_URL must start with postgres:// or sqlite:")
		}
		if cfg.EncryptionKeys == "" {
			wrong(`KTMS_ENCRYPTION_KEYS is required: make one with  echo "1:$(head -c 32 /dev/urandom | base64)"`)
		}
	}
	if cfg.EncryptionKeys != "" && !dev {
		if _, err := seal.ParseKeyring(cfg.EncryptionKeys); err != nil {
			wrong("KTMS_ENCRYPTION_KEYS: %w", err)
		}
	}
	if _, known := levels[cfg.LogLevel]; !known {
		wrong("LOG_LEVEL must be debug, info, warn or error, not %q", cfg.LogLevel)
	}
	for _, positive := range []struct {
		name  string
		value int64
	}{
		{"GRPC_MAX_RECV_MSG_SIZE", cfg.MaxMessage}, {"HTTP_API_MAX_BODY_SIZE", cfg.MaxBody},
		{"HTTP_API_TIMEOUT", int64(cfg.APITimeout)}, {"SHUTDOWN_TIMEOUT", int64(cfg.Shutdown)},
		{"DB_MAX_CONNS", int64(cfg.MaxConns)}, {"DB_TIMEOUT", int64(cfg.DBTimeout)},
		{"ROUTING_RELOAD_SECONDS", int64(cfg.ReloadSeconds)}, {"MIGRATE_TIMEOUT", int64(cfg.MigrateTimeout)},
		{"CIRCUIT_BREAKER_FAIL_THRESHOLD", int64(cfg.BreakerThreshold)}, {"CIRCUIT_BREAKER_COOLDOWN", int64(cfg.BreakerCooldown)},
		{"UPSTREAM_CONNECT_TIMEOUT", int64(cfg.ConnectTimeout)}, {"REDIS_TIMEOUT", int64(cfg.RedisTimeout)},
		{"SPEND_DEFAULT_OUTPUT_RESERVE_TOKENS", cfg.OutputReserve}, {"NODE_HEARTBEAT_INTERVAL_SECONDS", int64(cfg.NodeInterval)},
		{"NODE_HEARTBEAT_TTL_SECONDS", int64(cfg.NodeTTL)}, {"NODE_RETENTION_TTL_DAYS", int64(cfg.NodeRetention)},
		{"NODE_SWEEP_INTERVAL", int64(cfg.NodeSweep)},
	} {
		if positive.value <= 0 && !unread[positive.name] {
			wrong("%s must be greater than 0", positive.name)
		}
	}
	for _, atLeastZero := range []struct {
		name  string
		value int64
	}{
		{"DB_MIN_CONNS", int64(cfg.MinConns)}, {"AUTH_STALE_IF_ERROR", int64(cfg.StaleIfError)},
		{"UPSTREAM_REQUEST_TIMEOUT", int64(cfg.UpstreamTimeout)}, {"UPSTREAM_FIRST_BYTE_TIMEOUT", int64(cfg.FirstByteTimeout)},
		{"UPSTREAM_SILENCE_TIMEOUT", int64(cfg.SilenceTimeout)}, {"REDIS_DB", int64(cfg.RedisDB)}, {"VENDOR_COOLDOWN_MAX", int64(cfg.MaxPause)},
	} {
		if atLeastZero.value < 0 {
			wrong("%s must not be negative", atLeastZero.name)
		}
	}
	if cfg.SpendFailMode != spendOpen && cfg.SpendFailMode != spendClosed {
		wrong("SPEND_LIMITS_FAIL_MODE must be open or closed, not %q", cfg.SpendFailMode)
	}
	if math.IsNaN(cfg.BudgetGrace) || cfg.BudgetGrace > maxGrace {
		wrong("BUDGET_GRACE_MARGIN is a part of the budget, such as 0.05 for 5%%, and at most %d", maxGrace)
	}
	for _, bounded := range []struct {
		name        string
		value, most int
	}{
		{"NODE_HEARTBEAT_INTERVAL_SECONDS", cfg.NodeInterval, maxNodeSeconds}, {"NODE_HEARTBEAT_TTL_SECONDS", cfg.NodeTTL, maxNodeSeconds},
		{"NODE_RETENTION_TTL_DAYS", cfg.NodeRetention, maxNodeDays},
	} {
		if bounded.value > bounded.most {
			wrong("%s must be at most %d", bounded.name, bounded.most)
		}
	}
	if cfg.NodeTTL <= cfg.NodeInterval && cfg.NodeInterval > 0 && cfg.NodeTTL > 0 {
		wrong("NODE_HEARTBEAT_TTL_SECONDS must be greater than NODE_HEARTBEAT_INTERVAL_SECONDS, or nodes are offline between their heartbeats")
	}
	if !(cfg.NodeAffinity >= 0 && cfg.NodeAffinity <= selection.MaxAffinity) {
		wrong("NODE_PREFIX_AFFINITY must be from 0, which switches it off, to %d", selection.MaxAffinity)
	}
	if key := cfg.SeedClientKey; key != "" && (!strings.HasPrefix(key, access.KeyPrefix) || access.IsNodeKey(key)) {
		wrong("SEED_CLIENT_KEY must start with %s, and not with %s", access.KeyPrefix, access.NodeKeyPrefix)
	}
	for _, base := range []struct{ name, value string }{
		{"OPENAI_BASE_URL", cfg.OpenAIURL}, {"GEMINI_BASE_URL", cfg.GeminiURL}, {"ANTHROPIC_BASE_URL", cfg.AnthropicURL},
	} {
		if u, err := url.Parse(base.value); base.value != "" && (err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https")) {
			wrong("%s must be an http:// or https:// URL without a user or password in it", base.name)
		}
	}
	for _, u := range unbuilt {
		if u.guarded && wanted(u.name) {
			wrong("%s is set, but this release does not have that feature; unset it", u.name)
		}
	}
	return cfg, errors.Join(mistakes...)
}

// wanted reports whether a variable asks for its feature: false in any spelling does not.
func wanted(name string) bool {
	set := os.Getenv(name)
	if on, err := strconv.ParseBool(set); err == nil {
		return on
	}
	return set != ""
}

// parseMistakes says in plain words which variables could not be read.
func parseMistakes(err error) (mistakes []error, unread map[string]bool) {
	if err == nil {
		return nil, nil
	}
	unread = map[string]bool{}
	several := env.AggregateError{Errors: []error{err}}
	_ = errors.As(err, &several)
	for _, one := range several.Errors {
		var failed env.ParseError
		if !errors.As(one, &failed) {
			mistakes = append(mistakes, one)
			continue
		}
		name := failed.Name
		if field, found := reflect.TypeFor[config]().FieldByName(failed.Name); found {
			name = field.Tag.Get("env")
		}
		unread[name] = true
		want := map[string]string{"time.Duration": "a duration such as 30s or 5m", "bool": "true or false", "float64": "a number such as 0.05"}[failed.Type.String()]
		if want == "" {
			want = "a whole number"
		}
		mistakes = append(mistakes, fmt.Errorf("%s must be %s, not %q", name, want, os.Getenv(name)))
	}
	return mistakes, unread
}

// scheme is the part of a URL before the colon. The URL itself may hold a password, so it is never shown.
func scheme(databaseURL string) string {
	before, _, _ := strings.Cut(databaseURL, ":")
	return before
}

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
}

// vendorSeeds are the vendor keys and endpoints that the environment gives.
func (c config) vendorSeeds() []vendorSeed {
	first := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	return []vendorSeed{
		{vendor: "openai", key: first(c.SeedOpenAI, c.OpenAIKey), endpoint: c.OpenAIURL},
		{vendor: "anthropic", key: first(c.SeedAnthropic, c.AnthropicKey), endpoint: c.AnthropicURL},
		{vendor: "google", key: first(c.SeedGemini, c.GeminiKey), endpoint: c.GeminiURL},
	}
}
