package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

const testToken = "correct-horse-battery-staple"

// tokenFile writes a file with a token.
func tokenFile(t *testing.T, contents string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTokenIsDemandedOfEverythingButHealth(t *testing.T) {
	a := startAgent(t, Config{TokenFile: tokenFile(t, "\n "+testToken+"\n", 0o600)})
	ctx := within(t)
	for _, tt := range []struct {
		name    string
		headers []string
		want    codes.Code
	}{
		{"right", []string{"Bearer " + testToken}, codes.OK},
		{"any case of the scheme", []string{"bearer " + testToken}, codes.OK},
		{"none", nil, codes.Unauthenticated},
		{"wrong", []string{"Bearer " + testToken + "r"}, codes.Unauthenticated},
		{"empty", []string{"Bearer "}, codes.Unauthenticated},
		{"no scheme", []string{testToken}, codes.Unauthenticated},
		{"another scheme", []string{"Basic " + testToken}, codes.Unauthenticated},
		{"twice", []string{"Bearer " + testToken, "Bearer " + testToken}, codes.Unauthenticated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := ctx
			for _, h := range tt.headers {
				ctx = withToken(ctx, h)
			}
			reason := ""
			if tt.want != codes.OK {
				reason = "TOKEN_REFUSED"
			}
			_, err := a.system().GetInfo(ctx, &guestdv1.GetInfoRequest{})
			wantCode(t, err, tt.want, reason)
			stream, err := reflectionv1.NewServerReflectionClient(a.client).ServerReflectionInfo(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			wantCode(t, err, tt.want, reason)
		})
	}
	if _, err := healthv1.NewHealthClient(a.client).Check(ctx, &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("health without a token: %v", err)
	}
	// Who has no token learns nothing of what a request looks like either.
	wantCode(t, a.sendRaw(ctx, guestdv1.ProcessService_Get_FullMethodName, []byte{0x0a, 1, 0xff}), codes.Unauthenticated, "TOKEN_REFUSED")
}

func TestTokenIsSetAndChanged(t *testing.T) {
	a := startAgent(t, Config{})
	ctx := within(t)
	configure := func(ctx context.Context, token string) error {
		_, err := a.system().Configure(ctx, &guestdv1.ConfigureRequest{Token: &token})
		return err
	}
	for _, bad := range []string{"", "short", strings.Repeat("x", 15), strings.Repeat("x", 4097), "has a space inside it", "has-a-control\x01-character", "not-äscii-but-long-enough"} {
		wantCode(t, configure(ctx, bad), codes.InvalidArgument, "INVALID_FIELD")
	}
	if err := configure(ctx, testToken); err != nil {
		t.Fatal(err)
	}
	wantCode(t, configure(ctx, "another-token-of-somebody"), codes.Unauthenticated, "TOKEN_REFUSED")
	const next = "the-next-token-0123456789"
	if err := configure(withToken(ctx, "Bearer "+testToken), next); err != nil {
		t.Fatal(err)
	}
	wantCode(t, configure(withToken(ctx, "Bearer "+testToken), testToken), codes.Unauthenticated, "TOKEN_REFUSED")
	wantCode(t, configure(withToken(ctx, "Bearer "+next), ""), codes.InvalidArgument, "INVALID_FIELD")
	if _, err := a.system().GetInfo(withToken(ctx, "Bearer "+next), &guestdv1.GetInfoRequest{}); err != nil {
		t.Errorf("the new token: %v", err)
	}
}

func TestWrongTokenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g tokenGuard
		if err := g.check(t.Context()); err != nil {
			t.Errorf("without a token: %v", err)
		}
		g.set(testToken)
		incoming := func(header string) context.Context {
			return metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", header))
		}
		for header, want := range map[string]time.Duration{
			"Bearer " + testToken: 0,
			"Bearer wrong":        wrongTokenDelay,
		} {
			start := time.Now()
			if err := g.check(incoming(header)); (err != nil) != (want > 0) {
				t.Errorf("%s: %v", header, err)
			}
			if waited := time.Since(start); waited != want {
				t.Errorf("%s waited %v, want %v", header, waited, want)
			}
		}
		// A call that has ended holds nothing.
		ctx, cancel := context.WithCancelCause(incoming("Bearer wrong"))
		cancel(nil)
		start := time.Now()
		if err := g.check(ctx); !errors.Is(err, errTokenRefused) || time.Since(start) != 0 {
			t.Errorf("after its end: %v after %v", err, time.Since(start))
		}
	})
}

func TestTokenFile(t *testing.T) {
	if got, err := readTokenFile(tokenFile(t, testToken, 0o400)); got != testToken || err != nil {
		t.Errorf("= %q, %v", got, err)
	}
	for name, tt := range map[string]struct {
		path, says string
	}{
		"missing":        {filepath.Join(t.TempDir(), "none"), "no such file"},
		"folder":         {t.TempDir(), "not a regular file"},
		"group-readable": {tokenFile(t, testToken, 0o640), "chmod 600"},
		"world-readable": {tokenFile(t, testToken, 0o604), "chmod 600"},
		"empty":          {tokenFile(t, "\n", 0o600), "16 to 4096"},
		"short":          {tokenFile(t, "0123456789abcde\n", 0o600), "not 15"},
		"long":           {tokenFile(t, strings.Repeat("x", 1<<20), 0o600), "16 to 4096"},
		"two lines":      {tokenFile(t, testToken+"\n"+testToken, 0o600), "without space"},
	} {
		if _, err := readTokenFile(tt.path); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want an error with %q", name, err, tt.says)
		}
	}
	if os.Geteuid() == 0 {
		path := tokenFile(t, testToken, 0o600)
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := readTokenFile(path); err == nil || !strings.Contains(err.Error(), "belongs") {
			t.Errorf("a guest user's file: %v", err)
		}
	}
}
