package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newResize(a *app) *cobra.Command {
	var rows, columns string
	cmd := &cobra.Command{
		Use:     "resize ID [--rows N] [--columns N]",
		Short:   "Set the size of a process's terminal",
		Long:    "Set the size of a process's terminal: to the local terminal's, or to what the flags say.",
		Example: "  guestctl resize p-3k5r2m7q8w2xj --rows 50 --columns 120",
		Args:    exactly(1, "one process id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := a.wantedSize(rows, columns)
			if err != nil {
				return err
			}
			return a.resize(cmd.Context(), args[0], size)
		},
	}
	cmd.Flags().StringVar(&rows, "rows", "", "give it `N` rows")
	cmd.Flags().StringVar(&columns, "columns", "", "give it `N` columns")
	return cmd
}

func (a *app) resize(ctx context.Context, id string, size client.Size) error {
	c, err := a.connectLasting(ctx, "resize")
	if err != nil {
		return err
	}
	return naming(id, c.ResizeProcess(ctx, id, size))
}

// wantedSize is the local terminal's size with what the flags say instead.
func (a *app) wantedSize(rows, columns string) (client.Size, error) {
	size, known := a.terminalSize()
	if !known && (rows == "" || columns == "") {
		return size, errors.New("there is no local terminal whose size could be taken: name --rows and --columns")
	}
	for _, flag := range []struct {
		text string
		into *int
	}{{rows, &size.Rows}, {columns, &size.Columns}} {
		if flag.text == "" {
			continue
		}
		n, err := strconv.ParseUint(flag.text, 10, 16)
		if err != nil || n == 0 {
			return size, fmt.Errorf("%s is no number of rows or columns from 1 to 65535", quoted(flag.text))
		}
		*flag.into = int(n)
		size.XPixels, size.YPixels = 0, 0 // those of another size
	}
	return size, nil
}
