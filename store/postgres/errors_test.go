package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ai-process/ktms/store"
)

func TestTranslate(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	other := errors.New("other")
	state := func(code string) error { return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code}) }
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want error
	}{
		"no row":                        {t.Context(), pgx.ErrNoRows, store.ErrNotFound},
		"a unique constraint":           {t.Context(), state("23505"), store.ErrExists},
		"a closed connection":           {t.Context(), io.ErrUnexpectedEOF, store.ErrUnavailable},
		"a reset connection":            {t.Context(), &net.OpError{Op: "read", Err: syscall.ECONNRESET}, store.ErrUnavailable},
		"the store's own deadline":      {t.Context(), context.DeadlineExceeded, store.ErrUnavailable},
		"a server with too many":        {t.Context(), state("53300"), store.ErrUnavailable},
		"a server that shuts down":      {t.Context(), state("57P01"), store.ErrUnavailable},
		"a server that starts":          {t.Context(), state("57P03"), store.ErrUnavailable},
		"a canceled statement":          {t.Context(), state("57014"), store.ErrUnavailable},
		"a standby":                     {t.Context(), state("25006"), store.ErrUnavailable},
		"a deadlock":                    {t.Context(), state("40P01"), store.ErrUnavailable},
		"a full disk":                   {t.Context(), state("53100"), store.ErrUnavailable},
		"a caller that went away":       {canceled, context.Canceled, context.Canceled},
		"a caller that broke a connect": {canceled, io.EOF, context.Canceled},
		"anything else":                 {t.Context(), other, other},
	} {
		got := translate(test.ctx, test.err)
		if !errors.Is(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
		if test.want != store.ErrNotFound && !errors.Is(got, test.err) {
			t.Errorf("%s: the cause is lost: %v", name, got)
		}
		if test.want == context.Canceled && errors.Is(got, store.ErrUnavailable) {
			t.Errorf("%s is called unavailable", name)
		}
	}
	for _, code := range []string{"42601", "42P01", "23503", "22021"} {
		got := translate(t.Context(), state(code))
		for _, sentinel := range []error{store.ErrExists, store.ErrNotFound, store.ErrUnavailable} {
			if errors.Is(got, sentinel) {
				t.Errorf("SQLSTATE %s is called %v", code, sentinel)
			}
		}
	}
	if translate(t.Context(), nil) != nil {
		t.Error("no error became one")
	}
}
