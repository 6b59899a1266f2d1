"""One path of FastAPI that uses SQLAlchemy: what servers.py runs under uvicorn. Everything is the default of both, but
for the time-out of 5 s, which is Python's."""
import os

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from sqlalchemy import ForeignKey, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

engine = create_engine(f"sqlite:///{os.environ['DATABASE']}", connect_args={"timeout": 5})
app = FastAPI()


class Base(DeclarativeBase):
    pass


class Counter(Base):
    __tablename__ = "counter"
    id: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[int]


class Visit(Base):
    __tablename__ = "visit"
    id: Mapped[int] = mapped_column(primary_key=True)
    counter_id: Mapped[int] = mapped_column(ForeignKey("counter.id"))
    text: Mapped[str]


@app.get("/add/{number}", response_class=PlainTextResponse)
def add(number: int):
    try:
        with Session(engine) as session, session.begin():
            counter = session.get(Counter, number)
            counter.value += 1
            value = counter.value
            session.add(Visit(counter_id=number, text=f"the visit {value}"))
    except OperationalError as error:
        return PlainTextResponse(str(error), status_code=503)
    return str(value)
