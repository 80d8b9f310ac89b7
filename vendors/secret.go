package vendors

import (
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[secret]"

// Secret is a credential. It prints as "[secret]" under every verb, in JSON and in logs; only Reveal gives it away.
type Secret struct{ value string }

// NewSecret wraps a plain credential.
func NewSecret(plain string) Secret { return Secret{plain} }

// Reveal returns the plain credential, for the one line that writes it into a header.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no credential.
func (s Secret) IsZero() bool { return s.value == "" }

// Format covers every verb, the mismatched ones too.
func (s Secret) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redacted) }

// String implements fmt.Stringer.
func (s Secret) String() string { return redacted }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
