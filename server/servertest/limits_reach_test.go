package servertest_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/api/gen/ktms/v1/ktmsv1connect"
	"github.com/ai-process/ktms/server/servertest"
	"github.com/ai-process/ktms/store/storetest"
)

// TestLimits_Scopes: who may change limits, who may look at them, and who neither.
func TestLimits_Scopes(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	upsert(t, s, "m")
	reads := map[string]func(context.Context, ktmsv1connect.AdminServiceClient) error{
		"ListSpendLimits": func(ctx context.Context, c ktmsv1connect.AdminServiceClient) error {
			_, err := c.ListSpendLimits(ctx, &ktmsv1.ListSpendLimitsRequest{})
			return err
		},
		"ListUserRateLimits": func(ctx context.Context, c ktmsv1connect.AdminServiceClient) error {
			_, err := c.ListUserRateLimits(ctx, &ktmsv1.ListUserRateLimitsRequest{})
			return err
		},
		"GetConfig": func(ctx context.Context, c ktmsv1connect.AdminServiceClient) error {
			_, err := c.GetConfig(ctx, &ktmsv1.GetConfigRequest{})
			return err
		},
	}
	writes := map[string]func(context.Context, ktmsv1connect.AdminServiceClient) error{
		"spend limits": func(ctx context.Context, c ktmsv1connect.AdminServiceClient) error {
			_, err := c.SetSpendLimit(ctx, spends("user", "*", "day", 5))
			_, deleting := c.DeleteSpendLimit(ctx, &ktmsv1.DeleteSpendLimitRequest{SubjectType: "user", SubjectId: "*", Period: "day"})
			return same(err, deleting)
		},
		"user rate limits": func(ctx context.Context, c ktmsv1connect.AdminServiceClient) error {
			_, err := c.SetUserRateLimit(ctx, perMinute("*", "m", 5, 0))
			_, deleting := c.DeleteUserRateLimit(ctx, &ktmsv1.DeleteUserRateLimitRequest{UserId: "*", ModelId: "m"})
			return same(err, deleting)
		},
	}
	const ok = connect.Code(0)
	for _, who := range []struct {
		what, key   string
		read, write connect.Code
	}{
		{"without a key", "", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"with a made-up key", "ktms_0123", connect.CodeUnauthenticated, connect.CodeUnauthenticated},
		{"with generate", mint(t, s, "client", "generate"), connect.CodePermissionDenied, connect.CodePermissionDenied},
		{"with admin:read", mint(t, s, "reader", "admin:read"), ok, connect.CodePermissionDenied},
		{"with admin", mint(t, s, "boss", "admin"), ok, ok},
	} {
		client := ktmsv1connect.NewAdminServiceClient(s.Client(t, who.key))
		for what, call := range reads {
			if err := call(t.Context(), client); codeOf(err) != who.read {
				t.Errorf("%s %s: got %v, want %v", what, who.what, err, who.read)
			}
		}
		for what, call := range writes {
			if err := call(t.Context(), client); codeOf(err) != who.write {
				t.Errorf("%s %s: got %v, want %v", what, who.what, err, who.write)
			}
		}
	}
}

// codeOf is 0 for no error.
func codeOf(err error) connect.Code {
	if err == nil {
		return 0
	}
	return connect.CodeOf(err)
}

// same is the error that two calls have in common.
func same(first, second error) error {
	if codeOf(first) != codeOf(second) {
		return fmt.Errorf("one ended with %w, the other with %w", first, second)
	}
	return first
}

// TestLimits_BodiesOfTheManual sends what the manual shows, as it shows it.
func TestLimits_BodiesOfTheManual(t *testing.T) {
	s := servertest.Start(t, servertest.Defaults(t))
	mint(t, s, "support-bot", "generate")
	for _, name := range []string{"set_spend_limit_key.json", "set_spend_limit_user.json"} {
		body, err := os.ReadFile("../../api/testdata/manual/" + name)
		if err != nil {
			t.Fatal(err)
		}
		code, _, answer := request(t, http.MethodPost, s.GRPC+"/ktms.v1.AdminService/SetSpendLimit", servertest.AdminKey, string(body))
		if code != 200 {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if got := liveConfig(t, s).GetSpendLimits(); len(got) != 2 || got[0].GetLimitNanousd() != 50_000_000_000 || got[1].GetSubjectId() != "*" {
		t.Errorf("stored are %v", got)
	}
}

// TestLimits_ReachOtherReplicas sets every kind of limit on one server and asks the other for what is in force there.
func TestLimits_ReachOtherReplicas(t *testing.T) {
	a, b := replicas(t)
	ctx := t.Context()
	upstream := scripted(t, okAnswer)
	key := a.Configure(t, servertest.Setup{Key: "billing", Models: []*ktmsv1.ModelSpec{servertest.Model("m", upstream)}})
	org, err := a.Admin.CreateOrganization(ctx, &ktmsv1.CreateOrganizationRequest{Name: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	team, err := a.Admin.CreateTeam(ctx, &ktmsv1.CreateTeamRequest{OrgId: org.GetOrganization().GetId(), Name: "search", MonthlyBudgetUsd: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Admin.SetSpendLimit(ctx, spends("key", "billing", "day", 5)); err != nil {
		t.Fatal(err)
	}
	onB := func(subjectType, subjectID string) (limits []int64) {
		r, err := b.Admin.GetSpend(ctx, &ktmsv1.GetSpendRequest{SubjectType: subjectType, SubjectId: subjectID})
		if err != nil {
			t.Fatal(err)
		}
		for _, window := range r.GetWindows() {
			limits = append(limits, window.GetLimitNanousd())
		}
		return limits
	}
	storetest.Eventually(t, time.Minute, "B knows the cap of the key", func() bool { return slices.Equal(onB("key", "billing"), []int64{5, 0}) })
	storetest.Eventually(t, time.Minute, "B knows the budget of the team", func() bool {
		return slices.Equal(onB("team", team.GetTeam().GetId()), []int64{3_000_000_000})
	})
	if _, err := a.Admin.DeleteSpendLimit(ctx, &ktmsv1.DeleteSpendLimitRequest{SubjectType: "key", SubjectId: "billing", Period: "day"}); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, time.Minute, "B has lifted the cap", func() bool { return slices.Equal(onB("key", "billing"), []int64{0, 0}) })

	client := ktmsv1connect.NewGatewayServiceClient(b.Client(t, key))
	call := func() error {
		_, err := client.GenerateText(ctx, lowRequest)
		return err
	}
	if err := call(); err != nil {
		t.Fatalf("without a rate: %v", err)
	}
	if _, err := a.Admin.SetUserRateLimit(ctx, perMinute("*", "m", 1, -1)); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, time.Minute, "B refuses what exceeds the rate", func() bool { return codeOf(call()) == connect.CodeResourceExhausted })
	if _, err := a.Admin.DeleteUserRateLimit(ctx, &ktmsv1.DeleteUserRateLimitRequest{UserId: "*", ModelId: "m"}); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, time.Minute, "B has lifted the rate", func() bool { return call() == nil })
}
