package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/memory"
	"github.com/ai-process/ktms/pool/redis"
	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/server/dispatch"
	"github.com/ai-process/ktms/store"
	"github.com/ai-process/ktms/store/postgres"
	"github.com/ai-process/ktms/store/seal"
	"github.com/ai-process/ktms/store/sqlite"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/anthropic"
	"github.com/ai-process/ktms/vendors/bedrock"
	"github.com/ai-process/ktms/vendors/demo"
	"github.com/ai-process/ktms/vendors/gemini"
	"github.com/ai-process/ktms/vendors/openai"
	"github.com/ai-process/ktms/vendors/transport"
)

// dialects is the only list of who speaks to which vendor.
func dialects(limits transport.Limits) map[string]vendors.Vendor {
	version := buildVersion()
	compatible := openai.New(openai.Options{Version: version, Limits: limits})
	return map[string]vendors.Vendor{
		vendors.OpenAI:    compatible,
		vendors.DeepSeek:  compatible,
		vendors.Groq:      compatible,
		vendors.Mistral:   compatible,
		vendors.Azure:     compatible,
		vendors.Ollama:    compatible,
		vendors.Anthropic: anthropic.New(anthropic.Options{Version: version, Limits: limits}),
		vendors.Google:    gemini.New(gemini.Options{Version: version, Limits: limits}),
		vendors.Bedrock:   bedrock.New(bedrock.Options{Version: version, Limits: limits}),
		vendors.Demo:      demo.New(),
	}
}

// assemble opens the store, seeds it if asked to, and builds the server. closeAll releases what it opened.
func assemble(ctx context.Context, cfg config, log *slog.Logger, stderr io.Writer) (s *server.Server, closeAll func(), err error) {
	keyring, err := seal.ParseKeyring(cfg.EncryptionKeys)
	if err != nil {
		return nil, nil, fmt.Errorf("KTMS_ENCRYPTION_KEYS: %w", err)
	}
	st, err := openStore(ctx, cfg, log)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			st.Close()
		}
	}()
	metrics := server.NewMetrics()
	meter, machines, closePool, err := openPool(cfg, log, metrics)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			closePool()
		}
	}()
	limits := transport.Limits{Connect: cfg.ConnectTimeout, FirstByte: cfg.FirstByteTimeout, Silence: cfg.SilenceTimeout}
	speaking := dialects(limits)
	local := localPool(cfg, machines, keyring, limits, log)
	speaking[vendors.Local] = local
	if cfg.AutoSeed {
		if err := seedStore(ctx, st, keyring, seedPlan(ctx, cfg, log), cfg.dev, stderr); err != nil {
			return nil, nil, fmt.Errorf("AUTO_SEED: %w", err)
		}
	}
	breaker := dispatch.HealthOptions{Threshold: cfg.BreakerThreshold, Cooldown: cfg.BreakerCooldown, MaxPause: cfg.MaxPause}
	if !cfg.BreakerEnabled {
		breaker.Threshold = 0
	}
	s, err = server.New(ctx, server.Options{
		Store: st, Sealer: keyring, Vendors: speaking, Version: buildVersion(), Log: log, Metrics: metrics, Meter: meter,
		Limits: server.Limits{SpendClosed: cfg.SpendFailMode == spendClosed, Grace: cfg.BudgetGrace, OutputReserve: cfg.OutputReserve,
			Lease: cfg.lease},
		GRPCAddr: cfg.GRPCAddr, HTTPAddr: cfg.HTTPAddr, MetricsAddr: cfg.MetricsAddr,
		APIEnabled: cfg.APIEnabled, APITimeout: cfg.APITimeout, MaxBody: cfg.MaxBody, MaxMessage: cfg.MaxMessage,
		CORSOrigins: cfg.CORSOrigins, ReflectionRequiresKey: cfg.ReflectionKey, LegacyHeaders: cfg.LegacyHeaders,
		BootstrapKey: cfg.BootstrapKey, StaleIfError: cfg.StaleIfError, StoreTimeout: cfg.DBTimeout,
		ReloadEvery: time.Duration(cfg.ReloadSeconds) * time.Second, Breaker: breaker,
		UpstreamTimeout: cfg.UpstreamTimeout, ShutdownTimeout: cfg.Shutdown,
		Nodes: machines, NodePool: nodePool(cfg, local),
	})
	if err != nil {
		return nil, nil, err
	}
	return s, func() {
		closePool()
		st.Close()
	}, nil
}

// openPool picks where limits are counted and nodes are kept: in Redis, which replicas share, or in this process.
func openPool(cfg config, log *slog.Logger, metrics *server.Metrics) (meter pool.Meter, machines pool.Nodes, closePool func(), err error) {
	retention := time.Duration(cfg.NodeRetention) * 24 * time.Hour
	if cfg.RedisAddr == "" {
		if !cfg.dev {
			log.Info("REDIS_ADDR is not set: limits are counted and nodes are known in this process alone, which is right for one replica")
		}
		return memory.New(memory.Options{}), memory.NewNodes(memory.NodesOptions{Retention: retention}), func() {}, nil
	}
	client, err := redis.New(redis.Options{
		Addr: cfg.RedisAddr, Password: cfg.RedisPassword, DB: cfg.RedisDB, KeyPrefix: cfg.RedisPrefix, Timeout: cfg.RedisTimeout,
		Log: log, Failed: func(operation string) { metrics.DependencyFailed(server.DependencyRedis, operation) },
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("REDIS_ADDR: %w", err)
	}
	return client.Meter(), client.Nodes(redis.NodesOptions{Retention: retention}), client.Close, nil
}

// openStore picks the database by its URL.
func openStore(ctx context.Context, cfg config, log *slog.Logger) (store.Store, error) {
	if path, ok := strings.CutPrefix(cfg.DatabaseURL, "sqlite:"); ok {
		st, err := sqlite.Open(ctx, sqlite.Options{Path: strings.TrimPrefix(path, "//"), Timeout: cfg.DBTimeout})
		if err != nil {
			return nil, fmt.Errorf("open the database: %w", err)
		}
		return st, nil
	}
	minConns := cfg.MinConns
	if minConns == 0 {
		minConns = -1 // the option's zero is its default
	}
	st, err := postgres.Open(ctx, postgres.Options{
		DSN: cfg.DatabaseURL, MaxConns: cfg.MaxConns, MinConns: minConns, Timeout: cfg.DBTimeout,
		Migrate: cfg.AutoMigrate, MigrateTimeout: cfg.MigrateTimeout, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return st, nil
}

// seedStore seeds; in dev it also remembers what it left, for the next start.
func seedStore(ctx context.Context, st store.Store, keyring *seal.Keyring, want *seeding, dev bool, stderr io.Writer) error {
	if dev {
		want.left = readImprint()
	}
	if err := seed(ctx, st, keyring, want, stderr); err != nil {
		return err
	}
	if dev && want.leaves != "" {
		return writeImprint(want.leaves)
	}
	return nil
}
