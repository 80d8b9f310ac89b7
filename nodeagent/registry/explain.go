package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"connectrpc.com/connect/v2"
)

// Cause is why a call to the registry failed.
type Cause int

// The causes.
const (
	// Away means that the gateway could not be asked, or could not answer. It may be back at any time.
	Away Cause = iota
	// Refused means that the gateway said no. Somebody has to change something first.
	Refused
	// Unknown means that the gateway does not know the node: it has to register.
	Unknown
	// Old means that the gateway is of a release that does not have the call.
	Old
	// Replaced means that another run of the agent has registered the node since, and is the node now.
	Replaced
)

// Trouble is a failed call in plain words.
type Trouble struct {
	Cause Cause
	// Text says what is wrong, and what to do.
	Text string
}

// replacedSymptom is how the gateway says that another run of the agent has registered.
const replacedSymptom = "another agent has registered"

// Explain makes plain words of the error of a call.
func Explain(err error) Trouble {
	if key, missing := errors.AsType[*KeyError](err); missing {
		return Trouble{Refused, key.Error()}
	}
	said := Message(err)
	if status, found := httpStatus(err); found {
		return Trouble{status, "this is not the gateway's gRPC port (9090), maybe its HTTP port: check --proxy-addr (" + said + ")"}
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnauthenticated:
		return Trouble{Refused, "the gateway does not accept the node key (" + said +
			"): check NODE_KEY or the file of --node-key-file, or ask for a new key"}
	case connect.CodePermissionDenied:
		return Trouble{Refused, "the gateway refuses the node: " + said + denialHint(said)}
	case connect.CodeFailedPrecondition:
		if strings.Contains(said, replacedSymptom) {
			return Trouble{Replaced, said}
		}
		return Trouble{Refused, "the gateway refuses the node: " + said}
	case connect.CodeInvalidArgument, connect.CodeAlreadyExists, connect.CodeOutOfRange:
		return Trouble{Refused, "the gateway refuses the node: " + said}
	case connect.CodeResourceExhausted:
		return Trouble{Away, "the gateway has too much to do: " + said}
	case connect.CodeNotFound:
		return Trouble{Unknown, "the gateway does not know the node: " + said}
	case connect.CodeUnimplemented:
		return Trouble{Old, "the server does not have this call of the node registry (" + said +
			"): check that --proxy-addr is the gateway's gRPC port (9090 unless it was changed), and that its release has a node pool"}
	default:
		return Trouble{Away, away(err)}
	}
}

// httpStatus finds an answer without gRPC that says where the call went: whoever sent it has no registry. What it means is
// known of two statuses alone; others come from a proxy whose gateway is away.
func httpStatus(err error) (cause Cause, found bool) {
	rpc, is := errors.AsType[*connect.Error](err)
	if !is || rpc.IsRemote() || !strings.HasPrefix(rpc.Message(), "HTTP status ") {
		return Away, false
	}
	switch rpc.Code() {
	case connect.CodePermissionDenied: // 403
		return Refused, true
	case connect.CodeUnimplemented: // 404
		return Old, true
	default:
		return Away, false
	}
}

func denialHint(said string) string {
	switch {
	case strings.Contains(said, "belongs to node"):
		return ". A key is bound to one machine: use the --node-id it was minted for, or ask for a new key"
	case strings.Contains(said, "scope"):
		return ". This is a key of another kind: ask for a node key"
	case strings.Contains(said, "not permitted"):
		return ". The key allows other models: name those that it allows with --only-model, or ask for a new key"
	default:
		return ""
	}
}

// away says why the gateway could not be asked.
func away(err error) string {
	var (
		record  tls.RecordHeaderError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		dns     *net.DNSError
	)
	text := Message(err)
	if rpc, answered := errors.AsType[*connect.Error](err); answered && rpc.IsRemote() && rpc.Code() != connect.CodeDeadlineExceeded {
		return "the gateway answered with an error: " + text
	}
	switch {
	case errors.As(err, &record), strings.Contains(text, "does not look like a TLS handshake"),
		strings.Contains(text, "gave HTTP response to HTTPS client"):
		return "the gateway speaks plaintext at this address: leave --tls out, or use the address of its TLS endpoint"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate of the gateway is out of date, or the clock of this machine is wrong: " + text
	case errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid):
		return "the certificate of the gateway is not trusted: " + text
	case strings.Contains(text, "no application protocol"):
		return "the TLS endpoint of the gateway does not speak HTTP/2, which gRPC needs: let it offer h2"
	case errors.As(err, &dns):
		return "the gateway's name cannot be resolved: " + text
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens at the gateway's address: start the gateway, or give its gRPC address with --proxy-addr (port 9090 by default): " + text
	case errors.Is(err, context.DeadlineExceeded), connect.CodeOf(err) == connect.CodeDeadlineExceeded:
		return "the gateway did not answer in time"
	case closed(err, text):
		return "the gateway closed the connection: if it stands behind TLS, --tls must be given (" + text + ")"
	default:
		return "the gateway cannot be reached: " + text
	}
}

// closed reports whether the other side ended the connection, which one that waits for TLS does, too. Depending on the
// moment it shows in many ways, and not all of them are kept as the causes of the error.
func closed(err error, text string) bool {
	for _, cause := range []error{io.ErrUnexpectedEOF, io.EOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, cause) {
			return true
		}
	}
	for _, symptom := range []string{"EOF", "broken pipe", "connection reset", "closed network connection", "frame", "could not be established"} {
		if strings.Contains(text, symptom) {
			return true
		}
	}
	return false
}
