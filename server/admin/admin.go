// Package admin is the control plane: AdminService over the store.
//
// Every change runs in one transaction that also compiles the configuration as it would be; what does not compile is
// rolled back, so an invalid state never becomes active. This replica applies a change before it answers.
package admin

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/server/admit"
	"github.com/ai-process/ktms/server/caller"
	"github.com/ai-process/ktms/server/routing"
	"github.com/ai-process/ktms/server/status"
	"github.com/ai-process/ktms/store"
)

// Sealer encrypts what the store must not read.
type Sealer interface {
	// Seal encrypts with the newest key version; aad binds the result to its row.
	Seal(plain, aad []byte) []byte
	Open(sealed, aad []byte) ([]byte, error)
	// Version is the key version that sealed needs, Newest the one that Seal uses.
	Version(sealed []byte) (int, error)
	Newest() int
}

// Options is what a Handler needs.
type Options struct {
	Store  store.Store
	Sealer Sealer
	// Applied makes this replica follow a change; it returns once the change is in force here.
	Applied func(context.Context, store.Change)
	Table   func() *routing.Table
	View    routing.View
	// Spent reads where a subject's spend limits stand (see admit.Controller).
	Spent func(ctx context.Context, limits admit.Limits, subjectType, subjectID string, periods ...string) ([]admit.Window, error)
	// Nodes are the machines of the local pool. One that is not heard of for longer than NodeTTL is offline.
	Nodes   pool.Nodes
	NodeTTL time.Duration
	// Weigh tells how this replica's selector sees every node for a call to a model, in tokens; nil leaves that out.
	Weigh     func(ctx context.Context, model string, prompt, maxOutput int64) ([]pool.Weighing, error)
	Validator *status.Validator
	Log       *slog.Logger
}

// Handler implements AdminService. What is not built yet answers UNIMPLEMENTED.
type Handler struct {
	ktmsv1connect.UnimplementedAdminServiceHandler
	options Options
}

// New returns a Handler.
func New(options Options) *Handler { return &Handler{options: options} }

const (
	defaultPage = 100
	// keyBytes is the randomness of a minted key: 192 bits.
	keyBytes = 24
	// prefixLength is how much of a key is kept to recognise it by: "ktms_" and seven digits.
	prefixLength = 12
)

// change validates req, runs fn in one transaction together with the check of the whole configuration, and applies the
// result here. It returns the new version.
func (h *Handler) change(ctx context.Context, req proto.Message, fn func(context.Context, store.Tx) error) (int64, error) {
	return h.changeChecked(ctx, req, fn, h.compiles)
}

func (h *Handler) changeChecked(ctx context.Context, req proto.Message, fn, check func(context.Context, store.Tx) error) (int64, error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return 0, status.RPC(err)
	}
	change, err := h.options.Store.Update(ctx, func(ctx context.Context, tx store.Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return check(ctx, tx)
	})
	if err != nil {
		return 0, h.refusal(ctx, err)
	}
	// The change is committed: it is applied here even if the caller is gone.
	h.options.Applied(context.WithoutCancel(ctx), change)
	h.options.Log.InfoContext(ctx, "configuration changed", "operation", string(req.ProtoReflect().Descriptor().Name()),
		"version", change.Version, "by", caller.From(ctx).KeyName, "request_id", caller.RequestID(ctx))
	return change.Version, nil
}

// compiles reports every mistake in the configuration that the transaction would leave.
func (h *Handler) compiles(ctx context.Context, tx store.Tx) error {
	cfg, err := tx.Config(ctx)
	if err != nil {
		return err
	}
	return check(cfg)
}

func check(cfg *store.Config) error {
	_, err := routing.Compile(cfg, nil)
	return err
}

// refusal turns an error of the store or of a check into the caller's.
func (h *Handler) refusal(ctx context.Context, err error) error {
	var known *status.Error
	switch {
	case errors.As(err, &known):
	case errors.Is(err, store.ErrNotFound):
		known = status.Wrap(err, status.NotFound, "not found")
	case errors.Is(err, store.ErrExists):
		known = status.Wrap(err, status.AlreadyExists, "already exists")
	case errors.Is(err, store.ErrInUse):
		known = status.Wrap(err, status.FailedPrecondition, "something else still belongs to it")
	case errors.Is(err, store.ErrUnavailable):
		h.options.Log.ErrorContext(ctx, "storage failed", "error", err)
		known = status.Wrap(err, status.StorageUnavailable, "the database does not answer; retry with backoff")
	case errors.Is(err, pool.ErrUnavailable):
		h.options.Log.ErrorContext(ctx, "the pool of nodes failed", "error", err)
		known = status.Wrap(err, status.StorageUnavailable, "the pool's state is not reachable; retry with backoff")
	case errors.Is(err, context.Canceled):
		known = status.Wrap(err, status.Canceled, "the caller went away")
	case errors.Is(err, context.DeadlineExceeded):
		known = status.Wrap(err, status.DeadlineExceeded, "the call's deadline passed")
	default:
		h.options.Log.ErrorContext(ctx, "admin call failed", "error", err)
		known = status.As(err)
	}
	return status.RPC(known)
}

// named gives a bare store error the name of what was asked for.
func named(err error, kind, name string) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return status.Wrap(err, status.NotFound, "no %s %q", kind, name)
	case errors.Is(err, store.ErrExists):
		return status.Wrap(err, status.AlreadyExists, "%s %q already exists", kind, name)
	}
	return err
}

// keepsItsName refuses a name that a revoked key had: logs and usage of the past are told by it.
func keepsItsName(kind, name string) error {
	return status.New(status.AlreadyExists, "%s %q is revoked, and keeps its name; choose another one", kind, name)
}

// pageOf cuts one page out of a sorted list; name gives an item's place in the order.
func pageOf[T any](all []T, size int32, token string, name func(T) string) (page []T, next string, err error) {
	after, err := decodeToken(token)
	if err != nil {
		return nil, "", err
	}
	limit := pageSize(size)
	for _, item := range all {
		if token != "" && name(item) <= after {
			continue
		}
		if len(page) == limit {
			return page, encodeToken(name(page[limit-1])), nil
		}
		page = append(page, item)
	}
	return page, "", nil
}

// keysPage is a request for one page of keys.
type keysPage interface {
	proto.Message
	GetPageSize() int32
	GetPageToken() string
	GetIncludeRevoked() bool
}

// listedPage reads one page of what the store itself lists, by name.
func listedPage[T any](ctx context.Context, h *Handler, req keysPage,
	list func(ctx context.Context, after string, limit int, includeRevoked bool) ([]T, error), name func(T) string,
) (page []T, next string, err error) {
	if err := h.options.Validator.Validate(req); err != nil {
		return nil, "", status.RPC(err)
	}
	after, err := decodeToken(req.GetPageToken())
	if err != nil {
		return nil, "", err
	}
	limit := pageSize(req.GetPageSize())
	page, err = list(ctx, after, limit+1, req.GetIncludeRevoked())
	if err != nil {
		return nil, "", h.refusal(ctx, err)
	}
	if len(page) > limit {
		page = page[:limit]
		next = encodeToken(name(page[limit-1]))
	}
	return page, next, nil
}

func pageSize(size int32) int {
	if size == 0 {
		return defaultPage
	}
	return int(size)
}

func encodeToken(after string) string { return base64.RawURLEncoding.EncodeToString([]byte(after)) }

func decodeToken(token string) (string, error) {
	after, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return "", status.RPC(status.Invalid([]status.Violation{{Path: "page_token", Text: "is not a token of this list"}}))
	}
	return string(after), nil
}

// now is the time to the microsecond, which is what both databases keep.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
