// Draws panels of our dashboards with the components that Grafana itself draws them with. Data come from `window.PAGE`.
import { createTheme, DataFrame, dateTime, FieldType, getDisplayProcessor, MutableDataFrame, ThemeContext } from '@grafana/data';
import { LegendDisplayMode, VizLegendOptions } from '@grafana/schema';
import { GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import React from 'react';
import { createRoot } from 'react-dom/client';
import 'uplot/dist/uPlot.min.css';

interface Series {
  name: string;
  times: number[];
  values: Array<number | null>;
}
interface Panel {
  title: string;
  defaults: Record<string, unknown>;
  legend: VizLegendOptions;
  series: Series[];
}
interface Page {
  from: number;
  to: number;
  columns: number;
  width: number;
  height: number;
  gap: number;
  panels: Panel[];
}
declare global {
  interface Window {
    PAGE: Page;
  }
}

const theme = createTheme({ colors: { mode: 'dark' } });

function frames(panel: Panel): DataFrame[] {
  return panel.series.map((series, index) => {
    const frame = new MutableDataFrame({
      fields: [
        { name: 'time', type: FieldType.time, values: series.times, config: {} },
        {
          name: series.name,
          type: FieldType.number,
          values: series.values,
          config: { ...panel.defaults, displayName: series.name, color: { mode: 'palette-classic' } },
        },
      ],
    });
    for (const field of frame.fields) {
      // Grafana numbers series when it runs queries; colours are taken by that number.
      field.state = { seriesIndex: index };
      field.display = getDisplayProcessor({ field, theme });
    }
    return frame;
  });
}

function One({ panel, page }: { panel: Panel; page: Page }) {
  const range = { from: dateTime(page.from), to: dateTime(page.to), raw: { from: dateTime(page.from), to: dateTime(page.to) } };
  return (
    <PanelChrome title={panel.title} width={page.width} height={page.height}>
      {(width, height) => (
        <TimeSeries
          frames={frames(panel)}
          timeRange={range}
          timeZone="utc"
          width={width}
          height={height}
          legend={{ ...panel.legend, displayMode: LegendDisplayMode.List }}
        />
      )}
    </PanelChrome>
  );
}

function All({ page }: { page: Page }) {
  const style = { display: 'grid', gap: page.gap, padding: page.gap, background: theme.colors.background.canvas, gridTemplateColumns: `repeat(${page.columns}, ${page.width}px)` };
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={style}>
        {page.panels.map((panel) => (
          <One key={panel.title} panel={panel} page={page} />
        ))}
      </div>
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('root')!).render(<All page={window.PAGE} />);
