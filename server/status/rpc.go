package status

import (
	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Domain is the ErrorInfo domain of every error.
const Domain = "ktms"

// RPC turns err into the error of the gRPC, gRPC-Web and Connect doors: ErrorInfo always, RetryInfo where a wait is
// known, BadRequest where fields are at fault.
func RPC(err error) *connect.Error {
	var already *connect.Error
	if asRPC(err, &already) {
		return already
	}
	e := As(err)
	out := connect.NewError(table[e.Reason].rpc, e.Message()).WithCause(err)
	out = withDetail(out, &errdetails.ErrorInfo{Reason: e.Code(), Domain: Domain})
	if e.RetryAfter > 0 {
		out = withDetail(out, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if len(e.Violations) > 0 {
		bad := &errdetails.BadRequest{}
		for _, v := range e.Violations {
			bad.FieldViolations = append(bad.FieldViolations,
				&errdetails.BadRequest_FieldViolation{Field: v.Path, Description: v.Text})
		}
		out = withDetail(out, bad)
	}
	for _, detail := range e.Details {
		out = withDetail(out, detail)
	}
	return out
}

func withDetail(err *connect.Error, message proto.Message) *connect.Error {
	detail, failed := connectproto.NewErrorDetail(message)
	if failed != nil {
		return err // a detail that cannot be encoded must not hide the error
	}
	return err.WithDetail(detail)
}
